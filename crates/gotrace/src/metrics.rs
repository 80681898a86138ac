//! What the tracing of programs counts: records, their fates, and what is lost before there is a trace.

use std::{collections::HashMap, iter::Sum};

use telemetry::{Counters, Gauge, Gauges, Label as _, Registry};

use crate::{
    assemble::{Account, Count, Counter, Fate, Loss, Stats},
    worker::Summary,
};

telemetry::labels! {
    /// Why records are lost before they are decoded.
    RecordLoss {
        /// Records that found the ring buffer full.
        RingFull = "ring_full",
        /// Hits whose goroutine cannot be read.
        GoroutineFault = "goroutine_fault",
        /// Hits at an address that no plan knows.
        UnknownSite = "unknown_site",
        /// Records that make no sense.
        UndecodableRecord = "undecodable_record",
    }
}

telemetry::labels! {
    /// Totals that are counted elsewhere and copied here.
    Total {
        /// Hits of probes in traced processes.
        Hits = "hits",
        /// Records that came from the eBPF programs.
        Records = "records",
        /// Reads of a traced process's memory that failed: their values are absent from the record.
        ReadFaults = "read_faults",
        /// Ends of calls that began before the probes were there.
        StrayEnds = "stray_ends",
        /// Pods that were popped, but not to be scheduled.
        SkippedPods = "skipped_pods",
    }
}
