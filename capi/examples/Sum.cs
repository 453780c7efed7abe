// Sums an array over all members of a group, again and again.
//
//   Sum.exe NAMESPACE MEMBERS ROUNDS
//
// Start it on every machine. Without a cluster key, on one machine: set POTLUCK_EXAMPLE_LOOPBACK=1.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using PotluckNet;

static class Sum
{
    static int Main(string[] arguments)
    {
        if (!Potluck.IsAvailable)
        {
            Console.Error.WriteLine(Potluck.Problem);
            return 3;
        }
        try
        {
            Run(arguments[0], arguments[1], int.Parse(arguments[2])).Wait();
            return 0;
        }
        catch (AggregateException problem)
        {
            Console.Error.WriteLine(problem.InnerException.Message);
            return 1;
        }
    }

    static async Task Run(string space, string members, int rounds)
    {
        var settings = new Dictionary<string, string> { { "job", "sum" }, { "members", members }, { "stateless", "true" } };
        if (Environment.GetEnvironmentVariable("POTLUCK_EXAMPLE_LOOPBACK") != null)
        {
            settings["network"] = "loopback";
            settings["open"] = space;
        }
        else
        {
            settings["namespace"] = space;
        }
        using (var cluster = Cluster.Join(settings))
        {
            var context = await cluster.ContextAsync(TimeSpan.FromMinutes(1));
            bool isTold = false;
            for (int round = 0; round < rounds; round++)
            {
                var data = Enumerable.Range(context.Rank, 1000).Select(i => (float)i).ToArray();
                var before = (float[])data.Clone();
                try
                {
                    await context.AllReduceAsync<float>(data);
                }
                catch (PotluckException problem) when (problem.CanRenew)
                {
                    var kept = data.SequenceEqual(before) ? "kept" : "DAMAGED";
                    Console.WriteLine($"rank {context.Rank} of {context.Size}: {problem.Code}, array {kept}");
                    isTold = false;
                    var old = context;
                    context = await old.RenewedAsync(TimeSpan.FromMinutes(1));
                    old.Dispose();
                    continue;
                }
                int size = context.Size, ranks = size * (size - 1) / 2;
                if (!data.Select((x, i) => x == size * i + ranks).All(right => right))
                    throw new InvalidOperationException("a wrong sum");
                if (!isTold)
                    Console.WriteLine($"rank {context.Rank} of {size}: the sum is right");
                isTold = true;
            }
            context.Dispose();
        }
    }
}
