//! The few of Perfetto's messages that an export needs (protos/perfetto/trace/, Perfetto v52); numbers of
//! fields and values are theirs.

use prost::Message;

/// Messages: of each field its name, its type, and kind and number as prost has them.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = [$($kind:tt)*],)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, PartialEq, Message)]
        pub struct $name { $($(#[$doc])* #[prost($($kind)*)] pub $field: $type,)* }
    )*};
}

messages! {
    /// `TracePacket`: an entry of the trace.
    TracePacket {
        timestamp: Option<u64> = [uint64, optional, tag = "8"],
        clock_snapshot: Option<ClockSnapshot> = [message, optional, tag = "6"],
        trusted_packet_sequence_id: u32 = [uint32, tag = "10"],
        track_event: Option<TrackEvent> = [message, optional, tag = "11"],
        interned_data: Option<InternedData> = [message, optional, tag = "12"],
        sequence_flags: u32 = [uint32, tag = "13"],
        trace_packet_defaults: Option<TracePacketDefaults> = [message, optional, tag = "59"],
        track_descriptor: Option<TrackDescriptor> = [message, optional, tag = "60"],
    }

    TracePacketDefaults {
        timestamp_clock_id: u32 = [uint32, tag = "58"],
    }

    ClockSnapshot {
        clocks: Vec<Clock> = [message, repeated, tag = "1"],
        primary_trace_clock: u32 = [uint32, tag = "2"],
    }

    Clock {
        clock_id: u32 = [uint32, tag = "1"],
        timestamp: u64 = [uint64, tag = "2"],
    }

    TrackDescriptor {
        uuid: u64 = [uint64, tag = "1"],
        name: Option<String> = [string, optional, tag = "2"],
        process: Option<ProcessDescriptor> = [message, optional, tag = "3"],
        thread: Option<ThreadDescriptor> = [message, optional, tag = "4"],
        parent_uuid: Option<u64> = [uint64, optional, tag = "5"],
        counter: Option<CounterDescriptor> = [message, optional, tag = "8"],
        child_ordering: Option<u32> = [uint32, optional, tag = "11"],
        sibling_order_rank: Option<i32> = [int32, optional, tag = "12"],
    }

    ProcessDescriptor {
        pid: i32 = [int32, tag = "1"],
        process_name: Option<String> = [string, optional, tag = "6"],
    }

    ThreadDescriptor {
        pid: i32 = [int32, tag = "1"],
        tid: i64 = [int64, tag = "2"],
        thread_name: Option<String> = [string, optional, tag = "5"],
    }

    CounterDescriptor {
        unit: Option<u32> = [uint32, optional, tag = "3"],
        unit_name: Option<String> = [string, optional, tag = "6"],
        /// Counters with the same key are drawn on the same scale.
        y_axis_share_key: String = [string, tag = "7"],
    }

    TrackEvent {
        category_iids: Vec<u64> = [uint64, repeated, packed = "false", tag = "3"],
        debug_annotations: Vec<DebugAnnotation> = [message, repeated, tag = "4"],
        kind: u32 = [uint32, tag = "9"],
        name_iid: Option<u64> = [uint64, optional, tag = "10"],
        track_uuid: u64 = [uint64, tag = "11"],
        name: Option<String> = [string, optional, tag = "23"],
        counter_value: Option<i64> = [int64, optional, tag = "30"],
        /// Slices with the same number have the same colour.
        correlation_id: Option<u64> = [uint64, optional, tag = "52"],
        callstack: Option<Callstack> = [message, optional, tag = "55"],
    }

    /// `TrackEvent.Callstack`, outermost first.
    Callstack {
        frames: Vec<CallstackFrame> = [message, repeated, tag = "1"],
    }

    /// `TrackEvent.Callstack.Frame`
    CallstackFrame {
        function_name: String = [string, tag = "1"],
        source_file: Option<String> = [string, optional, tag = "2"],
        line_number: Option<u32> = [uint32, optional, tag = "3"],
    }

    DebugAnnotation {
        name_iid: Option<u64> = [uint64, optional, tag = "1"],
        int_value: Option<i64> = [int64, optional, tag = "4"],
        string_value: Option<String> = [string, optional, tag = "6"],
        name: Option<String> = [string, optional, tag = "10"],
        string_value_iid: Option<u64> = [uint64, optional, tag = "17"],
    }

    InternedData {
        event_categories: Vec<Interned> = [message, repeated, tag = "1"],
        event_names: Vec<Interned> = [message, repeated, tag = "2"],
        debug_annotation_names: Vec<Interned> = [message, repeated, tag = "3"],
        debug_annotation_string_values: Vec<Interned> = [message, repeated, tag = "29"],
    }

    /// `EventCategory`, `EventName`, `DebugAnnotationName`, `InternedString`: a string and its number.
    Interned {
        iid: u64 = [uint64, tag = "1"],
        text: String = [string, tag = "2"],
    }
}

/// Of `TracePacket::sequence_flags`: strings are numbered anew.
pub const INCREMENTAL_STATE_CLEARED: u32 = 1;
/// Of `TracePacket::sequence_flags`: numbers of strings told before are used.
pub const NEEDS_INCREMENTAL_STATE: u32 = 2;

/// `BUILTIN_CLOCK_REALTIME` and `BUILTIN_CLOCK_MONOTONIC`.
pub const REALTIME: u32 = 1;
pub const MONOTONIC: u32 = 3;

/// `TrackDescriptor::child_ordering`: by `sibling_order_rank`.
pub const EXPLICIT: u32 = 3;

/// `CounterDescriptor::UNIT_SIZE_BYTES`.
pub const SIZE_BYTES: u32 = 3;

/// Of `TrackEvent::kind`: a slice begins, the one that began last ends, a moment, a counter's value.
pub const SLICE_BEGIN: u32 = 1;
pub const SLICE_END: u32 = 2;
pub const INSTANT: u32 = 3;
pub const COUNTER: u32 = 4;
