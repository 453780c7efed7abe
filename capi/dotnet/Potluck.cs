// potluck for .NET: tasks over the C interface. C# 7, so that Mono compiles it too.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace PotluckNet
{
    /// <summary>Whether this process has the native library.</summary>
    public static class Potluck
    {
        // That of NativeMethods.g.cs.
        const uint Abi = 1;

        static readonly Lazy<string> problem = new Lazy<string>(Look);

        /// <summary>Whether the native library is there and fits this file.</summary>
        public static bool IsAvailable { get { return problem.Value == null; } }

        /// <summary>Why it is not available, in one sentence; null if it is.</summary>
        public static string Problem { get { return problem.Value; } }

        /// <summary>The version of the native library.</summary>
        public static unsafe string Version
        {
            get
            {
                ThrowUnlessAvailable();
                return Native.Text(NativeMethods.potluck_version());
            }
        }

        internal static void ThrowUnlessAvailable()
        {
            if (!IsAvailable)
                throw new PotluckException("unavailable", Problem, false, false);
        }

        static string Look()
        {
            try
            {
                uint abi = NativeMethods.potluck_abi();
                if (abi == Abi)
                    return null;
                return "the native library of potluck has interface " + abi + ", and this program was made for " +
                    Abi + "; install the same version of both";
            }
            catch (DllNotFoundException)
            {
                return "the native library of potluck (libpotluck) is not found; install it, or add its folder to " +
                    "the library path (LD_LIBRARY_PATH on Linux)";
            }
            catch (Exception problem) when (problem is EntryPointNotFoundException || problem is BadImageFormatException)
            {
                return "the native library of potluck does not fit this program: " + problem.Message;
            }
        }
    }

    /// <summary>Why a call has failed. All buffers are as they were.</summary>
    public sealed class PotluckException : Exception
    {
        /// <summary>The stable code, such as "aborted": see docs/errors.md and docs/c.md.</summary>
        public string Code { get; }

        /// <summary>Whether the same call should be made again on a new context.</summary>
        public bool Retryable { get; }

        /// <summary>Whether to take a new context, sync the state, and go on.</summary>
        public bool CanRenew { get; }

        internal PotluckException(string code, string message, bool retryable, bool canRenew) : base(message)
        {
            Code = code;
            Retryable = retryable;
            CanRenew = canRenew;
        }
    }

    /// <summary>The types of elements. The values are those of potluck.h.</summary>
    public enum DType : uint
    {
        F32 = 0, F64 = 1, F16 = 2, BF16 = 3, I8 = 4, U8 = 5, I16 = 6, U16 = 7, I32 = 8, U32 = 9, I64 = 10, U64 = 11,
        Bool = 12,
    }

    /// <summary>The operators of reductions. The values are those of potluck.h.</summary>
    public enum ReduceOp : uint
    {
        Sum = 0, Mean = 1, Product = 2, Min = 3, Max = 4, BitAnd = 5, BitOr = 6, BitXor = 7,
    }

    /// <summary>
    /// A codec, with the rounding errors that it adds to the next call. A buffer has one of its
    /// own.
    /// </summary>
    public sealed unsafe class Codec : Handle
    {
        /// <summary>
        /// "bf16", "f16", "int8", "int4", "one_bit", "top_k=0.01", "auto"; with "+feedback" or
        /// "-feedback".
        /// </summary>
        public Codec(string name)
        {
            Potluck.ThrowUnlessAvailable();
            potluck_codec* made = null;
            potluck_error* error = null;
            fixed (byte* text = Native.Bytes(name))
                Native.Check(NativeMethods.potluck_codec_new(text, &made, &error), error);
            SetHandle((IntPtr)made);
        }

        protected override bool ReleaseHandle()
        {
            NativeMethods.potluck_codec_free((potluck_codec*)handle);
            return true;
        }
    }

    /// <summary>The options of a call, beyond its arguments.</summary>
    public sealed class CallOptions
    {
        /// <summary>
        /// The call is aborted for all ranks if it is undecided when this has passed.
        /// </summary>
        public TimeSpan? Deadline { get; set; }

        /// <summary>
        /// Skips the vote: the call completes as soon as this rank has its result.
        /// </summary>
        public bool BestEffort { get; set; }

        /// <summary>
        /// Aborts a reduction for all ranks if a contribution or a result has a NaN or an infinity.
        /// </summary>
        public bool RejectNonFinite { get; set; }

        /// <summary>Compresses the data of an all-reduce of float.</summary>
        public Codec Codec { get; set; }

        /// <summary>
        /// The call is a mean over all ranks in which this is the weight of this rank.
        /// </summary>
        public double? Weight { get; set; }

        internal unsafe potluck_options Native(IntPtr codec)
        {
            var options = new potluck_options();
            options.size = (UIntPtr)(ulong)sizeof(potluck_options);
            if (Deadline != null)
                options.deadline_ms = (ulong)Math.Max(1, Math.Ceiling(Deadline.Value.TotalMilliseconds));
            options.flags = (BestEffort ? 1u : 0) | (RejectNonFinite ? 2u : 0) | (Weight != null ? 4u : 0);
            options.weight = Weight ?? 0;
            options.codec = (potluck_codec*)codec;
            return options;
        }
    }

    /// <summary>
    /// This process as a node of a cluster. Disposing it leaves, and disposes its contexts. Under
    /// Mono a program that does not dispose it may not end: Mono waits for native threads.
    /// </summary>
    public sealed unsafe class Cluster : Handle
    {
        readonly Contexts contexts;

        Cluster(potluck_cluster* made)
        {
            SetHandle((IntPtr)made);
            contexts = new Contexts(this);
        }

        /// <summary>
        /// Makes this process a node. The settings are those of potluck_config_set: "namespace",
        /// "key", "members" and others. Waits until the node runs, up to some seconds, and not for
        /// others.
        /// </summary>
        public static Cluster Join(IEnumerable<KeyValuePair<string, string>> settings = null)
        {
            Potluck.ThrowUnlessAvailable();
            potluck_config* config = NativeMethods.potluck_config_new();
            try
            {
                potluck_error* error = null;
                foreach (var setting in settings ?? new KeyValuePair<string, string>[0])
                    fixed (byte* key = Native.Bytes(setting.Key), value = Native.Bytes(setting.Value))
                        Native.Check(NativeMethods.potluck_config_set(config, key, value, &error), error);
                potluck_cluster* made = null;
                Native.Check(NativeMethods.potluck_join(config, &made, &error), error);
                return new Cluster(made);
            }
            finally
            {
                NativeMethods.potluck_config_free(config);
            }
        }

        /// <summary>
        /// The context of the newest View. Waits until there are enough members; the exception has
        /// the code "not-enough-peers" when the time has passed, and "closed" when the cluster is
        /// disposed meanwhile.
        /// </summary>
        public Task<Context> ContextAsync(TimeSpan? timeout = null)
        {
            long ms = Native.Milliseconds(timeout);
            return Task.Run(() => Waited(ms));
        }

        /// <summary>
        /// The status of this node: the document of "potluck status --json".
        /// </summary>
        public string StatusJson()
        {
            return Used(cluster =>
            {
                byte* json = null;
                potluck_error* error = null;
                Native.Check(NativeMethods.potluck_status_json((potluck_cluster*)cluster, &json, &error), error);
                try
                {
                    return Native.Text(json);
                }
                finally
                {
                    NativeMethods.potluck_string_free(json);
                }
            });
        }

        Context Waited(long ms)
        {
            return Used(cluster =>
            {
                potluck_context* made = null;
                potluck_error* error = null;
                Native.Check(NativeMethods.potluck_context_get((potluck_cluster*)cluster, ms, &made, &error), error);
                return new Context(made, contexts);
            });
        }

        protected override void Dispose(bool disposing)
        {
            if (disposing && !IsClosed)
            {
                contexts.Dispose();
                EndWaits();
            }
            base.Dispose(disposing);
        }

        // A task that waits for a context keeps the handle; this ends its wait.
        void EndWaits()
        {
            try
            {
                Used(cluster =>
                {
                    NativeMethods.potluck_close((potluck_cluster*)cluster);
                    return true;
                });
            }
            catch (ObjectDisposedException)
            {
                // Another thread has disposed it.
            }
        }

        protected override bool ReleaseHandle()
        {
            NativeMethods.potluck_leave((potluck_cluster*)handle);
            return true;
        }
    }

    /// <summary>
    /// This node's rank in one View of its group, and one lane of calls: a sequence that all ranks
    /// make in the same order. A method has read its input, and the call has its place, when it
    /// returns the task; but a receive from any rank takes its place when it has chosen a message.
    /// A token that is cancelled gives the call up for all ranks. Buffers are to
    /// be left alone until the task has ended; on every error they are as they were. A call that
    /// has ended just before its token was cancelled may have written its result, though the task
    /// is cancelled.
    /// </summary>
    public sealed unsafe class Context : Handle
    {
        readonly Contexts contexts;

        internal Context(potluck_context* made, Contexts contexts)
        {
            SetHandle((IntPtr)made);
            this.contexts = contexts;
            contexts.Add(this);
        }

        /// <summary>This node's rank, from 0.</summary>
        public int Rank { get { return Used(context => (int)NativeMethods.potluck_rank((potluck_context*)context)); } }

        /// <summary>The number of ranks.</summary>
        public int Size { get { return Used(context => (int)NativeMethods.potluck_size((potluck_context*)context)); } }

        /// <summary>
        /// Whether all members hold the same state, so that no call needs a sync first.
        /// </summary>
        public bool InSync { get { return Used(context => NativeMethods.potluck_in_sync((potluck_context*)context)); } }

        /// <summary>
        /// The elements of a buffer that this rank gets from ReduceScatterAsync: the first, and how
        /// many.
        /// </summary>
        public KeyValuePair<int, int> Shard(int count)
        {
            return Used(context =>
            {
                UIntPtr first, length;
                NativeMethods.potluck_shard((potluck_context*)context, (UIntPtr)count, &first, &length);
                return new KeyValuePair<int, int>((int)first, (int)length);
            });
        }

        /// <summary>
        /// Another lane of the same View, for another sequence of calls. Each tag is used once.
        /// </summary>
        public Context Lane(uint tag)
        {
            return Used(context =>
            {
                potluck_context* made = null;
                potluck_error* error = null;
                Native.Check(NativeMethods.potluck_context_lane((potluck_context*)context, tag, &made, &error), error);
                return new Context(made, contexts);
            });
        }

        /// <summary>The calls of some ranks among themselves, the own one included.</summary>
        public Context Group(int[] ranks, uint tag)
        {
            var named = new UIntPtr[ranks.Length + 1];
            for (int i = 0; i < ranks.Length; i++)
                named[i] = (UIntPtr)checked((uint)ranks[i]);
            return Used(context =>
            {
                potluck_context* made = null;
                potluck_error* error = null;
                fixed (UIntPtr* start = named)
                    Native.Check(NativeMethods.potluck_context_group((potluck_context*)context, start,
                        (UIntPtr)ranks.Length, tag, &made, &error), error);
                return new Context(made, contexts);
            });
        }

        /// <summary>The context of the newest View: this one's if it is still current.</summary>
        public Task<Context> RenewedAsync(TimeSpan? timeout = null)
        {
            long ms = Native.Milliseconds(timeout);
            return Task.Run(() => Renewed(ms));
        }

        Context Renewed(long ms)
        {
            return Used(context =>
            {
                potluck_context* made = null;
                potluck_error* error = null;
                Native.Check(NativeMethods.potluck_context_renewed((potluck_context*)context, ms, &made, &error), error);
                return new Context(made, contexts);
            });
        }

        /// <summary>
        /// Discards the result of a cancelled call that was decided already, so that the lane goes
        /// on. False if there is none, or if it is still undecided: then ask again.
        /// </summary>
        public bool DiscardResult()
        {
            return Used(context => NativeMethods.potluck_discard_result((potluck_context*)context));
        }

        /// <summary>
        /// Combines the buffers of all ranks, in place: afterwards all hold the same.
        /// </summary>
        public Task AllReduceAsync<T>(Memory<T> buffer, ReduceOp op = ReduceOp.Sum, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            var data = new Pinned<T>(buffer, of);
            return Started(options, token, new IPinned[] { data }, (context, given) => NativeMethods.potluck_all_reduce(
                context, data.Start, data.Count, data.DType, (uint)op, given));
        }

        /// <summary>Combines the buffers of all ranks in that of one.</summary>
        public Task ReduceAsync<T>(Memory<T> buffer, int root, ReduceOp op = ReduceOp.Sum, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            var data = new Pinned<T>(buffer, of);
            return Started(options, token, new IPinned[] { data }, (context, given) => NativeMethods.potluck_reduce(
                context, data.Start, data.Count, data.DType, (uint)op, (UIntPtr)root, given));
        }

        /// <summary>Combines the input of all ranks; output gets this rank's shard.</summary>
        public Task ReduceScatterAsync<T>(ReadOnlyMemory<T> input, Memory<T> output, ReduceOp op = ReduceOp.Sum,
            CallOptions options = null, CancellationToken token = default(CancellationToken), DType? of = null)
            where T : struct
        {
            var (data, to) = (new Pinned<T>(input, of), new Pinned<T>(output, of));
            return Started(options, token, new IPinned[] { data, to }, (context, given) =>
                NativeMethods.potluck_reduce_scatter(context, data.Start, data.Count, to.Start, to.Count, data.DType,
                    (uint)op, given));
        }

        /// <summary>Copies the buffer of one rank to all.</summary>
        public Task BroadcastAsync<T>(Memory<T> buffer, int root, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            var data = new Pinned<T>(buffer, of);
            return Started(options, token, new IPinned[] { data }, (context, given) => NativeMethods.potluck_broadcast(
                context, data.Start, data.Count, data.DType, (UIntPtr)root, given));
        }

        /// <summary>Collects the input of all ranks in the output, in rank order.</summary>
        public Task AllGatherAsync<T>(ReadOnlyMemory<T> input, Memory<T> output, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            var (data, to) = (new Pinned<T>(input, of), new Pinned<T>(output, of));
            return Started(options, token, new IPinned[] { data, to }, (context, given) => NativeMethods.potluck_all_gather(
                context, data.Start, data.Count, to.Start, to.Count, data.DType, given));
        }

        /// <summary>
        /// Gives each rank an equal part of the input; the output gets the parts for this rank.
        /// </summary>
        public Task AllToAllAsync<T>(ReadOnlyMemory<T> input, Memory<T> output, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            if (input.Length != output.Length)
                throw new ArgumentException("input and output have different lengths");
            var (data, to) = (new Pinned<T>(input, of), new Pinned<T>(output, of));
            return Started(options, token, new IPinned[] { data, to }, (context, given) => NativeMethods.potluck_all_to_all(
                context, data.Start, to.Start, data.Count, data.DType, given));
        }

        /// <summary>Sends a message to a rank. Ends when it has been received.</summary>
        public Task SendAsync<T>(ReadOnlyMemory<T> buffer, int to, uint tag = 0, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            var data = new Pinned<T>(buffer, of);
            return Started(options, token, new IPinned[] { data }, (context, given) => NativeMethods.potluck_send(
                context, data.Start, data.Count, data.DType, (UIntPtr)to, tag, given));
        }

        /// <summary>
        /// Receives a message of a rank, or of any rank. The result is the rank that has sent it.
        /// </summary>
        public Task<int> ReceiveAsync<T>(Memory<T> buffer, int? from = null, uint tag = 0, CallOptions options = null,
            CancellationToken token = default(CancellationToken), DType? of = null) where T : struct
        {
            var data = new Pinned<T>(buffer, of);
            return Ended.SourceOf(Started(options, token, new IPinned[] { data }, (context, given) =>
                NativeMethods.potluck_recv(context, data.Start, data.Count, data.DType, from ?? -1, tag, given)));
        }

        /// <summary>Waits for all ranks.</summary>
        public Task BarrierAsync(CallOptions options = null, CancellationToken token = default(CancellationToken))
        {
            return Started(options, token, new IPinned[0], (context, given) => NativeMethods.potluck_barrier(context, given));
        }

        /// <summary>Brings all members to one state. The result is the state.</summary>
        public Task<byte[]> SyncAsync(ulong version, ReadOnlyMemory<byte> state, CallOptions options = null,
            CancellationToken token = default(CancellationToken))
        {
            var data = new Pinned<byte>(state, null);
            return Ended.BytesOf(Started(options, token, new IPinned[] { data }, (context, given) =>
                NativeMethods.potluck_sync(context, version, data.Start, data.Count, given)));
        }

        delegate potluck_call* Start(potluck_context* context, potluck_options* given);

        Task<Ended> Started(CallOptions options, CancellationToken token, IPinned[] buffers, Start start)
        {
            var pending = new Pending(this, buffers);
            var chosen = options ?? new CallOptions();
            Func<IntPtr, Task<Ended>> begun = codec => Used(context =>
            {
                potluck_options given = chosen.Native(codec);
                pending.Begin(start((potluck_context*)context, &given), token);
                return pending.Task;
            });
            try
            {
                return chosen.Codec == null ? begun(IntPtr.Zero) : chosen.Codec.Used(begun);
            }
            catch
            {
                pending.Unpin();
                throw;
            }
        }

        protected override bool ReleaseHandle()
        {
            NativeMethods.potluck_context_free((potluck_context*)handle);
            return true;
        }
    }

    /// <summary>A handle of the native library.</summary>
    public abstract class Handle : SafeHandle
    {
        internal Handle() : base(IntPtr.Zero, true) { }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }

        /// <summary>Uses the pointer, which is not freed meanwhile.</summary>
        internal T Used<T>(Func<IntPtr, T> use)
        {
            bool isHeld = false;
            try
            {
                DangerousAddRef(ref isHeld);
                return use(handle);
            }
            finally
            {
                if (isHeld)
                    DangerousRelease();
            }
        }
    }

    /// <summary>
    /// The contexts of a cluster, to be disposed with it. Each of them refers to this, and so keeps
    /// the cluster: if the collector took it, the node would leave.
    /// </summary>
    sealed class Contexts
    {
        readonly Cluster owner;
        readonly List<WeakReference<Context>> all = new List<WeakReference<Context>>();
        int lookAt = 16;
        bool isDisposed;

        public Contexts(Cluster owner)
        {
            this.owner = owner;
        }

        public void Add(Context context)
        {
            GC.KeepAlive(owner);
            lock (all)
            {
                if (isDisposed)
                {
                    context.Dispose();
                    throw new ObjectDisposedException("Cluster");
                }
                if (all.Count >= lookAt)
                {
                    all.RemoveAll(one => !one.TryGetTarget(out var left) || left.IsClosed);
                    lookAt = Math.Max(16, 2 * all.Count);
                }
                all.Add(new WeakReference<Context>(context));
            }
        }

        public void Dispose()
        {
            lock (all)
            {
                isDisposed = true;
                foreach (var one in all)
                    if (one.TryGetTarget(out var context))
                        context.Dispose();
                all.Clear();
            }
        }
    }

    /// <summary>The result of a call, apart from the elements that it has written.</summary>
    struct Ended
    {
        public int Source;
        public byte[] Bytes;

        public static async Task<int> SourceOf(Task<Ended> call)
        {
            return (await call.ConfigureAwait(false)).Source;
        }

        public static async Task<byte[]> BytesOf(Task<Ended> call)
        {
            return (await call.ConfigureAwait(false)).Bytes;
        }
    }

    interface IPinned
    {
        void Unpin();
    }

    /// <summary>Memory that the garbage collector leaves where it is.</summary>
    sealed unsafe class Pinned<T> : IPinned where T : struct
    {
        System.Buffers.MemoryHandle handle;

        public readonly UIntPtr Count;
        public readonly uint DType;

        public Pinned(ReadOnlyMemory<T> memory, DType? of)
        {
            DType = (uint)Types.Of<T>(of);
            Count = (UIntPtr)memory.Length;
            handle = memory.Pin();
        }

        public void* Start { get { return handle.Pointer; } }

        public void Unpin()
        {
            handle.Dispose();
        }
    }

    static class Types
    {
        static readonly Dictionary<Type, DType> known = new Dictionary<Type, DType>
        {
            { typeof(float), DType.F32 }, { typeof(double), DType.F64 }, { typeof(sbyte), DType.I8 },
            { typeof(byte), DType.U8 }, { typeof(short), DType.I16 }, { typeof(ushort), DType.U16 },
            { typeof(int), DType.I32 }, { typeof(uint), DType.U32 }, { typeof(long), DType.I64 },
            { typeof(ulong), DType.U64 }, { typeof(bool), DType.Bool },
        };

        /// <summary>
        /// The type of the elements: that of C#, or for 16 bits one that C# does not have.
        /// </summary>
        public static unsafe DType Of<T>(DType? of) where T : struct
        {
            if (of == null && known.TryGetValue(typeof(T), out var own))
                return own;
            bool isHalf = of == DType.F16 || of == DType.BF16;
            if (isHalf && Marshal.SizeOf(typeof(T)) == 2)
                return of.Value;
            if (of != null && known.TryGetValue(typeof(T), out own) && own == of)
                return own;
            throw new ArgumentException(typeof(T) + " is no element type" + (of == null ? "" : " of " + of));
        }
    }

    /// <summary>A call, from its start to the end of its task.</summary>
    sealed unsafe class Pending
    {
        // The native library calls it, so it must not be collected.
        static readonly NativeMethods.potluck_call_on_done_function_delegate onDone = OnDone;

        readonly TaskCompletionSource<Ended> source =
            new TaskCompletionSource<Ended>(TaskCreationOptions.RunContinuationsAsynchronously);
        // Kept, and with it the cluster, until the call has ended.
        readonly Context context;
        readonly IPinned[] buffers;
        IntPtr call;
        // The native library knows whom to tell: from now on the call may be freed.
        volatile bool isListening;
        CancellationToken token;
        CancellationTokenRegistration registration;

        public Pending(Context context, IPinned[] buffers)
        {
            this.context = context;
            this.buffers = buffers;
        }

        public Task<Ended> Task { get { return source.Task; } }

        public void Begin(potluck_call* begun, CancellationToken given)
        {
            call = (IntPtr)begun;
            token = given;
            registration = given.Register(GiveUp);
            var self = GCHandle.Alloc(this);
            NativeMethods.potluck_call_on_done(begun, onDone, (void*)GCHandle.ToIntPtr(self));
            isListening = true;
            // It may have been cancelled before. Either this reads so, or `GiveUp` reads the above.
            Thread.MemoryBarrier();
            if (given.IsCancellationRequested)
                GiveUp();
        }

        public void Unpin()
        {
            foreach (var buffer in buffers)
                buffer.Unpin();
        }

        // The thread that takes the call frees it.
        potluck_call* Taken()
        {
            return (potluck_call*)Interlocked.Exchange(ref call, IntPtr.Zero);
        }

        void GiveUp()
        {
            if (isListening)
                NativeMethods.potluck_call_free(Taken());
        }

        static void OnDone(void* user, potluck_status status)
        {
            var self = GCHandle.FromIntPtr((IntPtr)user);
            var pending = (Pending)self.Target;
            self.Free();
            // No exception must reach the native library.
            try
            {
                pending.End(status);
            }
            catch (Exception problem)
            {
                pending.source.TrySetException(problem);
            }
        }

        void End(potluck_status status)
        {
            potluck_call* ended = Taken();
            try
            {
                // Nothing points at the buffers any more.
                Unpin();
                GC.KeepAlive(context);
                if (ended == null)
                    source.TrySetCanceled(token);
                else
                    Tell(ended);
            }
            finally
            {
                NativeMethods.potluck_call_free(ended);
            }
        }

        void Tell(potluck_call* ended)
        {
            // Only now: a token that is just giving the call up waits for this to return.
            registration.Dispose();
            potluck_error* error = null;
            if (NativeMethods.potluck_call_wait(ended, 0, &error) != potluck_status.POTLUCK_OK)
            {
                source.TrySetException(Native.Taken(error));
                return;
            }
            var result = new Ended { Source = (int)NativeMethods.potluck_call_source(ended) };
            void* bytes = null;
            UIntPtr count;
            if (NativeMethods.potluck_call_bytes(ended, &bytes, &count))
            {
                result.Bytes = new byte[(int)count];
                Marshal.Copy((IntPtr)bytes, result.Bytes, 0, (int)count);
            }
            source.TrySetResult(result);
        }
    }

    /// <summary>Text, times and errors of the native library.</summary>
    static unsafe class Native
    {
        /// <summary>With a zero byte at the end.</summary>
        public static byte[] Bytes(string text)
        {
            return Encoding.UTF8.GetBytes(text + "\0");
        }

        public static string Text(byte* text)
        {
            int length = 0;
            while (text[length] != 0)
                length++;
            return Encoding.UTF8.GetString(text, length);
        }

        /// <summary>-1 is without bound.</summary>
        public static long Milliseconds(TimeSpan? timeout)
        {
            return timeout == null ? -1 : (long)Math.Max(0, Math.Ceiling(timeout.Value.TotalMilliseconds));
        }

        /// <summary>The exception of an error, which is freed.</summary>
        public static PotluckException Taken(potluck_error* error)
        {
            var exception = new PotluckException(Text(NativeMethods.potluck_error_code(error)),
                Text(NativeMethods.potluck_error_message(error)), NativeMethods.potluck_error_retryable(error),
                NativeMethods.potluck_error_can_renew(error));
            NativeMethods.potluck_error_free(error);
            return exception;
        }

        public static void Check(potluck_status status, potluck_error* error)
        {
            if (status != potluck_status.POTLUCK_OK)
                throw Taken(error);
        }
    }
}
