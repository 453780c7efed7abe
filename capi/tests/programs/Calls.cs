// Calls of two nodes in one process: their results, cancellations and errors.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using PotluckNet;

static class Calls
{
    static void Main()
    {
        Run().Wait();
        Console.WriteLine("all is right");
    }

    static void Right(bool isRight, string what)
    {
        if (!isRight)
            throw new InvalidOperationException(what);
    }

    static async Task<string> CodeOf(Task call)
    {
        try
        {
            await call;
            return "none";
        }
        catch (OperationCanceledException)
        {
            return "cancelled";
        }
        catch (ObjectDisposedException)
        {
            return "disposed";
        }
        catch (PotluckException problem)
        {
            return problem.Code;
        }
    }

    static async Task Run()
    {
        Right(Potluck.IsAvailable && Potluck.Version.StartsWith("0."), "the library");
        try
        {
            Cluster.Join(new Dictionary<string, string> { { "colour", "red" } });
            Right(false, "a setting that is none");
        }
        catch (PotluckException problem)
        {
            Right(problem.Code == "argument" && problem.Message.Contains("colour"), problem.Message);
        }
        var settings = new Dictionary<string, string>
        {
            { "network", "process" }, { "open", "calls" }, { "members", "2" }, { "notices", "false" },
        };
        var clusters = new[] { Cluster.Join(settings), Cluster.Join(settings) };
        var alone = await CodeOf(clusters[0].ContextAsync(TimeSpan.Zero));
        Right(alone == "not-enough-peers" || alone == "none", alone);
        var ranks = await Task.WhenAll(clusters.Select(cluster => cluster.ContextAsync(TimeSpan.FromMinutes(1))));
        ranks = ranks.OrderBy(rank => rank.Rank).ToArray();
        Right(ranks[1].Rank == 1 && ranks[0].Size == 2 && ranks[0].InSync, "ranks");
        Right(clusters[0].StatusJson().Contains("\"state\""), "a status");
        await Results(ranks);
        await Ends(ranks);
        await Alone(settings);
        // With all of their contexts, or this program would not end.
        foreach (var cluster in clusters)
            cluster.Dispose();
    }

    /// Nobody else comes, and disposing the cluster ends the wait.
    static async Task Alone(Dictionary<string, string> settings)
    {
        settings["open"] = "alone";
        foreach (var timeout in new TimeSpan?[] { null, TimeSpan.FromMinutes(10) })
        {
            var cluster = Cluster.Join(settings);
            var wait = cluster.ContextAsync(timeout);
            // Most likely the wait has begun then; otherwise the task finds the cluster disposed.
            await Task.Delay(500);
            cluster.Dispose();
            Right(await Task.WhenAny(wait, Task.Delay(TimeSpan.FromSeconds(20))) == wait, "a wait that goes on");
            var code = await CodeOf(wait);
            Right(code == "closed" || code == "disposed", code);
        }
    }

    static async Task Results(Context[] ranks)
    {
        var sums = new[] { new double[] { 1, 2 }, new double[] { 10, 20 } };
        await Task.WhenAll(ranks.Select((rank, i) => rank.AllReduceAsync<double>(sums[i])));
        Right(sums.All(sum => sum.SequenceEqual(new double[] { 11, 22 })), "sums");

        var all = new[] { new int[2], new int[2] };
        await Task.WhenAll(ranks.Select((rank, i) => rank.AllGatherAsync<int>(new[] { i + 5 }, all[i])));
        Right(all.All(parts => parts.SequenceEqual(new[] { 5, 6 })), "parts");

        var shards = ranks.Select(rank => new long[rank.Shard(3).Value]).ToArray();
        await Task.WhenAll(ranks.Select((rank, i) => rank.ReduceScatterAsync<long>(new long[] { 1, 2, 3 }, shards[i])));
        Right(shards.SelectMany(shard => shard).SequenceEqual(new long[] { 2, 4, 6 }), "shards");

        var turned = new[] { new byte[2], new byte[2] };
        await Task.WhenAll(ranks.Select((rank, i) =>
            rank.AllToAllAsync<byte>(new[] { (byte)(10 * i), (byte)(10 * i + 1) }, turned[i])));
        Right(turned[0].SequenceEqual(new byte[] { 0, 10 }) && turned[1].SequenceEqual(new byte[] { 1, 11 }), "all to all");

        var flags = new[] { new[] { true, false }, new[] { false, false } };
        await Task.WhenAll(ranks.Select((rank, i) => rank.AllReduceAsync<bool>(flags[i], ReduceOp.BitOr)));
        Right(flags.All(flag => flag[0] && !flag[1]), "flags");

        // 1 and 2 as bfloat16.
        var halves = new[] { new ushort[] { 0x3f80 }, new ushort[] { 0x4000 } };
        await Task.WhenAll(ranks.Select((rank, i) => rank.AllReduceAsync<ushort>(halves[i], of: DType.BF16)));
        Right(halves.All(half => half[0] == 0x4040), "halves");

        var message = new float[3];
        var send = ranks[0].SendAsync<float>(new float[] { 1, 2, 3 }, 1, 7);
        Right(await ranks[1].ReceiveAsync<float>(message, null, 7) == 0, "the sender");
        await send;
        Right(message.SequenceEqual(new float[] { 1, 2, 3 }), "a message");

        var states = await Task.WhenAll(ranks.Select(rank => rank.SyncAsync(3, new byte[] { 1, 2 })));
        Right(states.All(state => state.SequenceEqual(new byte[] { 1, 2 })), "states");

        var codecs = ranks.Select(rank => new Codec("int8+feedback")).ToArray();
        var coarse = new[] { new float[] { 1, 1 }, new float[] { 3, 3 } };
        await Task.WhenAll(ranks.Select((rank, i) =>
            rank.AllReduceAsync<float>(coarse[i], ReduceOp.Mean, new CallOptions { Codec = codecs[i] })));
        Right(Math.Abs(coarse[0][0] - 2) < 0.1, "a codec");
        codecs[0].Dispose();
        bool isRefused = false;
        try
        {
            await ranks[0].AllReduceAsync<float>(coarse[0], options: new CallOptions { Codec = codecs[0] });
        }
        catch (ObjectDisposedException)
        {
            isRefused = true;
        }
        Right(isRefused, "a disposed codec");

        var lanes = ranks.Select(rank => rank.Lane(9)).ToArray();
        var group = ranks[0].Group(new[] { 0 }, 4);
        Right(group.Size == 1 && group.Rank == 0, "a group");
        await Task.WhenAll(lanes.Select(lane => lane.BarrierAsync()).Concat(new[] { group.BarrierAsync() }));
    }

    static async Task Ends(Context[] ranks)
    {
        var data = new[] { new float[] { 1, 2 }, new float[] { 3, 4 } };
        // Different calls.
        var calls = new[] { ranks[0].AllReduceAsync<float>(data[0]), ranks[1].BroadcastAsync<float>(data[1], 0) };
        Right(await CodeOf(calls[0]) == "mismatch" && await CodeOf(calls[1]) == "mismatch", "a mismatch");
        // A deadline.
        var options = new CallOptions { Deadline = TimeSpan.FromMilliseconds(20) };
        Right(await CodeOf(ranks[0].AllReduceAsync<float>(data[0], options: options)) == "aborted", "a deadline");
        Right(await CodeOf(ranks[1].AllReduceAsync<float>(data[1])) == "aborted", "the deadline of another one");
        // A cancellation gives the call up for all.
        var source = new CancellationTokenSource();
        var given = ranks[0].AllReduceAsync<float>(data[0], token: source.Token);
        source.Cancel();
        Right(await CodeOf(given) == "cancelled", "a cancellation");
        Right(await CodeOf(ranks[1].AllReduceAsync<float>(data[1])) == "aborted", "the cancellation of another one");
        Right(data[0].SequenceEqual(new float[] { 1, 2 }) && data[1].SequenceEqual(new float[] { 3, 4 }), "damage");
        // Also if the token was cancelled before: the call takes its place all the same.
        given = ranks[0].AllReduceAsync<float>(data[0], token: source.Token);
        Right(await CodeOf(given) == "cancelled", "a cancellation before the call");
        Right(await CodeOf(ranks[1].AllReduceAsync<float>(data[1])) == "aborted", "that of another one");
        // Cancellations at any time, also of calls that are just ending.
        var random = new Random(7);
        for (uint i = 0; i < 200; i++)
        {
            var lanes = ranks.Select(rank => rank.Lane(100 + i)).ToArray();
            var late = new CancellationTokenSource();
            var sums = lanes.Select((lane, r) => lane.AllReduceAsync<float>(new float[64], token: r == 0 ? late.Token : default(CancellationToken))).ToArray();
            late.CancelAfter(TimeSpan.FromTicks(random.Next(10000)));
            foreach (var sum in sums)
            {
                var code = await CodeOf(sum);
                Right(new[] { "none", "cancelled", "aborted" }.Contains(code), code);
            }
            // A cancelled call counts as one in flight until the other rank knows.
            if (i % 16 == 0)
                await Task.WhenAll(ranks.Select(rank => rank.BarrierAsync()));
        }
        // A type that is no element type.
        try
        {
            await ranks[0].AllReduceAsync<char>(new char[1]);
            Right(false, "a sum of characters");
        }
        catch (ArgumentException)
        {
        }
    }
}
