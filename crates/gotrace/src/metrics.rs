//! Metrics of tracing: records, their fates, and losses before there is a trace.

use std::{collections::HashMap, sync::atomic::Ordering};

use telemetry::{Counters, Gauge, Gauges, Label as _, Ratio, Registry, Seconds, SecondsInAll, Totals};

use crate::{
    account::{Account, Count, Counter, Fate, Loss, Stats},
    governor::{Cut, Part, meter::Governors},
    probe::Probes,
    worker::Summary,
};

telemetry::labels! {
    /// Why records are lost before they are decoded.
    pub RecordLoss {
        /// Records dropped at a full ring buffer.
        RingFull = "ring_full",
        /// Records of a process that sends more than its limit, or more than its share while the ring buffer fills.
        OverLimit = "over_limit",
        /// Hits whose goroutine cannot be read.
        GoroutineFault = "goroutine_fault",
        /// Hits at an address without a site.
        UnknownSite = "unknown_site",
        /// Samples dropped at a full ring buffer.
        SampleRingFull = "sample_ring_full",
        /// Records that cannot be decoded.
        UndecodableRecord = "undecodable_record",
    }
}

telemetry::labels! {
    /// Totals that are counted elsewhere and copied here.
    pub Total {
        /// Hits of probes in traced processes.
        Hits = "hits",
        /// Records from the eBPF programs.
        Records = "records",
        /// Failed reads of a traced process's memory: their values are absent from the record.
        ReadFaults = "read_faults",
        /// Samples of traced processes.
        Samples = "samples",
        /// Samples whose stack cannot be read.
        SampleFaults = "sample_faults",
        /// Ends of calls that began before the probes were attached.
        StrayEnds = "stray_ends",
        /// Pods that were popped, but not to be scheduled.
        SkippedPods = "skipped_pods",
        /// Attempts in which the calls of plugins were timed one by one.
        Windows = "exact_windows",
    }
}

telemetry::labels! {
    /// How the kernel executes the instruction under a probe.
    pub Class {
        /// Emulated by the kernel.
        Emulated = "emulated",
        /// Single-stepped, which takes longer.
        SingleStepped = "single_stepped",
    }
}

telemetry::labels! {
    /// A step of [`Cut`].
    pub Step {
        /// No exact windows.
        ExactWindows = "exact_windows",
        /// Half of the samples.
        HalfOfSamples = "half_of_samples",
        /// No samples.
        Samples = "samples",
        /// No queue moves.
        QueueMoves = "queue_moves",
        /// No calls of plugins.
        Plugins = "plugins",
        /// No phases.
        Phases = "phases",
    }
}

impl Step {
    /// Where the step is in the order.
    const fn cut(self) -> Cut {
        match self {
            Self::ExactWindows => Cut::ExactWindows,
            Self::HalfOfSamples => Cut::HalfOfSamples,
            Self::Samples => Cut::Samples,
            Self::QueueMoves => Cut::QueueMoves,
            Self::Plugins => Cut::Plugins,
            Self::Phases => Cut::Phases,
        }
    }
}

/// What tracing costs the traced processes, and what is cut.
#[derive(Clone, Debug)]
struct Overhead {
    ratio: Ratio,
    budget: Ratio,
    cost: Seconds<1>,
    cpu: SecondsInAll,
    hits: Counters<Class>,
    hit_ns: Gauges<Class>,
    cut: Gauges<Step>,
    cuts: Counters<Step>,
    over: Gauge,
}

impl Overhead {
    fn new(registry: &Registry) -> Self {
        let overhead = Self {
            ratio: registry.ratio(
                "overhead_ratio",
                "What tracing costs the traced program for which it is most, as a part of its CPU time: in the last half second",
            ),
            budget: registry.ratio(
                "budget_ratio",
                "The part of a program's CPU time that tracing may cost; 0 if there is no limit",
            ),
            cost: registry.seconds(
                "overhead",
                "What tracing has cost traced processes: counted hits, samples and timed calls, times what each costs",
                ["part"],
            ),
            cpu: registry.seconds_in_all("traced_cpu", "CPU time of traced processes, with what tracing costs"),
            hits: registry.counters("class_hits", "Hits by the class of their instruction", "class"),
            hit_ns: registry.gauges(
                "hit_nanoseconds",
                "What a hit costs a traced process, nanoseconds: its trap, measured at the start, and its program",
                "class",
            ),
            cut: registry.gauges("cut", "1 if this is cut now, so that the budget is kept", "what"),
            cuts: registry.counters("cuts", "How often this was cut, so that the budget is kept", "what"),
            over: registry.gauge(
                "over_budget",
                "Programs whose tracing costs more than the budget although nothing more can be cut",
            ),
        };
        // They are there from the start.
        Part::ALL.iter().for_each(|part| overhead.cost.set([part.label().into()], 0.0));
        overhead
    }
}

/// Metrics of tracing. Clones refer to the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    record_losses: Counters<RecordLoss>,
    losses: Counters<Loss>,
    /// In the order of [`Total`].
    totals: Vec<telemetry::Counter>,
    fates: Counters<Fate>,
    processes: Gauge,
    refused_processes: Gauge,
    untrusted_processes: Gauge,
    given_up: telemetry::Counter,
    foreign: Gauge,
    sites: Gauges<Class>,
    missing: Gauge,
    overhead: Overhead,
    /// The programs' own counters, by name.
    counters: HashMap<&'static str, Totals>,
}

impl Metrics {
    /// Registers the metrics, and the programs' own `counters`.
    #[must_use]
    pub fn new(registry: &Registry, counters: impl IntoIterator<Item = Counter>) -> Self {
        let own = |Counter { name, help, labels }: Counter| (name, registry.totals(name, help, labels));
        Self {
            record_losses: registry.losses(),
            losses: registry.losses(),
            totals: Total::ALL.iter().map(|total| registry.counter(total.label(), total.help())).collect(),
            fates: registry.counters("record_fates", "What became of records", "fate"),
            processes: registry.gauge("schedulers", "Scheduler processes traced now"),
            refused_processes: registry
                .gauge("schedulers_refused", "Scheduler processes that cannot be traced now"),
            untrusted_processes: registry.gauge(
                "schedulers_untrusted",
                "Processes whose name is that of a scheduler, and that no rule of --trust names",
            ),
            given_up: registry.counter(
                "executables_given_up",
                "Looks at a process's executable that took too long, because its file system hangs or is too slow",
            ),
            foreign: registry.gauge(
                "foreign_probes",
                "Sites of traced executables that had a breakpoint of another tracer when the probes were attached",
            ),
            sites: registry.gauges(
                "plan_sites",
                "Probes that are attached now, by what the kernel does with their instruction",
                "class",
            ),
            missing: registry.gauge(
                "plan_missing_functions",
                "Functions that were not found in traced schedulers: what they do is not in the traces",
            ),
            overhead: Overhead::new(registry),
            counters: counters.into_iter().map(own).collect(),
            registry: registry.clone(),
        }
    }

    /// Counts records that are lost before they are decoded.
    pub fn lose(&self, cause: RecordLoss, records: u64) {
        self.record_losses.add(cause, records);
    }

    /// All losses by cause, including zeros.
    #[must_use]
    pub fn lost(&self) -> Vec<(&'static str, u64)> {
        self.registry.lost()
    }

    /// Sets the number of traced processes, and of those that cannot be traced.
    pub fn set_processes(&self, traced: usize, refused: usize) {
        self.processes.set(traced as i64);
        self.refused_processes.set(refused as i64);
    }

    /// Sets the number of processes that look like those that are traced, and are not trusted.
    pub fn set_untrusted(&self, untrusted: usize) {
        self.untrusted_processes.set(untrusted as i64);
    }

    /// Counts a look at an executable that was given up.
    pub fn give_up(&self) {
        self.given_up.inc();
    }

    /// Sets the number of sites at which others have a breakpoint.
    pub fn set_foreign(&self, sites: usize) {
        self.foreign.set(sites as i64);
    }

    /// Sets the attached sites and the missing functions.
    pub fn set_planned<'a>(&self, plans: impl Iterator<Item = &'a Summary>) {
        let mut sums = [0, 0, 0];
        for Summary { emulated, single_stepped, missing, .. } in plans {
            for (sum, count) in sums.iter_mut().zip([*emulated, *single_stepped, missing.len()]) {
                *sum += count as i64;
            }
        }
        let [emulated, single_stepped, missing] = sums;
        self.sites.set(Class::Emulated, emulated);
        self.sites.set(Class::SingleStepped, single_stepped);
        self.missing.set(missing);
    }

    /// Sets a total that is counted elsewhere.
    pub fn set_total(&self, total: Total, count: u64) {
        self.totals[total as usize].inner().store(count, Ordering::Relaxed);
    }

    /// Sets the losses and the fates of events, summed over all programs.
    pub fn set_accounts(&self, accounts: impl Iterator<Item = (Stats, Account)>) {
        let (mut stats_sum, mut account_sum) = (Stats::default(), Account::default());
        for (stats, account) in accounts {
            stats_sum = stats_sum + stats;
            account_sum = account_sum + account;
        }
        stats_sum.each().for_each(|(loss, count)| self.losses.set(loss, count));
        account_sum.each().for_each(|(fate, count)| self.fates.set(fate, count));
        self.set_total(Total::StrayEnds, stats_sum.stray_ends);
        self.set_total(Total::SkippedPods, stats_sum.skipped);
        self.set_total(Total::Windows, stats_sum.windows);
    }

    /// Sets the programs' own counters.
    pub fn set_counts(&self, counts: &[Count]) {
        for Count { counter, labels, total } in counts {
            if let Some(totals) = self.counters.get(counter) {
                totals.set(labels, *total);
            }
        }
    }

    /// Sets what tracing costs, and what is cut.
    pub fn set_overhead(&self, governors: &Governors) {
        let Overhead { ratio, budget, cost, cpu, hits, hit_ns, cut, cuts: _, over } = &self.overhead;
        let (totals, traps) = (governors.totals(), governors.traps());
        ratio.set(totals.ratio);
        budget.set(governors.budget());
        for part in Part::ALL {
            cost.set([part.label().into()], totals.ns[part.index()] / 1e9);
        }
        cpu.set(totals.cpu_ns / 1e9);
        for (class, trap_ns) in
            [(Class::Emulated, traps.emulated_ns), (Class::SingleStepped, traps.single_stepped_ns)]
        {
            hits.set(class, totals.hits[class.index()]);
            hit_ns.set(class, trap_ns as i64 + totals.program_ns.round() as i64);
        }
        for step in Step::ALL {
            cut.set(*step, i64::from(totals.cut >= step.cut()));
        }
        over.set(totals.over as i64);
    }

    /// Counts a change of what is cut.
    pub fn cut(&self, from: Cut, to: Cut) {
        for step in Step::ALL.iter().filter(|step| from < step.cut() && step.cut() <= to) {
            self.overhead.cuts.add(*step, 1);
        }
    }

    /// Copies the counters of the eBPF programs.
    pub fn set_probes(&self, probes: &Probes) {
        for (cause, counter) in [
            (RecordLoss::RingFull, wire::Counter::RingFull),
            (RecordLoss::OverLimit, wire::Counter::OverLimit),
            (RecordLoss::GoroutineFault, wire::Counter::GoroutineFault),
            (RecordLoss::UnknownSite, wire::Counter::UnknownSite),
            (RecordLoss::SampleRingFull, wire::Counter::SampleRingFull),
        ] {
            self.record_losses.set(cause, probes.counter(counter));
        }
        self.set_total(Total::Hits, probes.counter(wire::Counter::Hits));
        self.set_total(Total::ReadFaults, probes.counter(wire::Counter::ReadFault));
        self.set_total(Total::Samples, probes.counter(wire::Counter::Samples));
        self.set_total(Total::SampleFaults, probes.counter(wire::Counter::SampleFault));
    }
}

impl Total {
    const fn help(self) -> &'static str {
        match self {
            Self::Hits => "Hits of probes in traced processes",
            Self::Records => "Records that came from the eBPF programs: hits less what was lost on the way",
            Self::ReadFaults => "Reads of a traced process's memory that failed",
            Self::Samples => "Samples of where traced processes spend their CPU time",
            Self::SampleFaults => "Samples whose stack could not be read: they have no phase",
            Self::StrayEnds => "Ends of calls that began before the probes were there",
            Self::SkippedPods => "Pods that were popped, but not to be scheduled",
            Self::Windows => "Attempts in which each call of a plugin was timed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Counter = Counter { name: "moves", help: "Moves", labels: &["queue"] };

    fn metrics() -> (Metrics, Registry) {
        let registry = Registry::default();
        (Metrics::new(&registry, [OWN]), registry)
    }

    fn assert_has(registry: &Registry, lines: &[&str]) {
        let text = registry.encode();
        for line in lines {
            assert!(text.contains(&format!("schedspan_{line}\n")), "{line} is not in {text}");
        }
    }

    #[test]
    fn processes_and_sites_are_those_of_now() {
        let (metrics, registry) = metrics();
        metrics.set_processes(2, 3);
        metrics.set_untrusted(4);
        metrics.set_foreign(5);
        metrics.give_up();
        let missing = |number: usize| {
            vec![
                crate::plan::Missing { function: String::new(), why: String::new(), without: String::new() };
                number
            ]
        };
        let plan = |emulated, single_stepped, number| Summary {
            emulated,
            single_stepped,
            missing: missing(number),
            ..Summary::default()
        };
        metrics.set_planned([plan(90, 20, 1), plan(9, 2, 0)].iter());
        assert_has(
            &registry,
            &[
                "schedulers 2",
                "schedulers_refused 3",
                "schedulers_untrusted 4",
                "foreign_probes 5",
                "executables_given_up_total 1",
                "plan_sites{class=\"emulated\"} 99",
                "plan_sites{class=\"single_stepped\"} 22",
                "plan_missing_functions 1",
            ],
        );
        metrics.set_planned([].iter());
        assert_has(&registry, &["plan_sites{class=\"emulated\"} 0", "plan_missing_functions 0"]);
    }

    #[test]
    fn losses_and_fates_are_summed_over_programs() {
        let (metrics, registry) = metrics();
        let one = (
            Stats { unwound_calls: 1, stray_ends: 2, skipped: 3, ..Stats::default() },
            Account { events: 10, in_attempts: 7, ..Account::default() },
        );
        metrics.set_accounts([one, one].into_iter());
        metrics.lose(RecordLoss::RingFull, 4);
        metrics.lose(RecordLoss::RingFull, 1);
        metrics.set_total(Total::Hits, 50);
        metrics.set_total(Total::Hits, 60);
        let lost: Vec<_> = metrics.lost().into_iter().filter(|(_, lost)| *lost > 0).collect();
        assert_eq!(lost, [("ring_full", 5), ("unwound_call", 2)]);
        assert_has(
            &registry,
            &[
                "stray_ends_total 4",
                "skipped_pods_total 6",
                "record_fates_total{fate=\"in_attempt\"} 14",
                "hits_total 60",
            ],
        );
    }

    #[test]
    fn what_tracing_costs_is_there_from_the_start_and_a_cut_counts_each_of_its_steps() {
        let (metrics, registry) = metrics();
        assert_has(
            &registry,
            &[
                "overhead_seconds_total{part=\"plugins\"} 0.0",
                "traced_cpu_seconds_total 0.0",
                "over_budget 0",
            ],
        );
        metrics.cut(Cut::ExactWindows, Cut::Samples);
        metrics.cut(Cut::Samples, Cut::Nothing);
        metrics.cut(Cut::Nothing, Cut::ExactWindows);
        assert_has(
            &registry,
            &[
                "cuts_total{what=\"exact_windows\"} 1",
                "cuts_total{what=\"half_of_samples\"} 1",
                "cuts_total{what=\"samples\"} 1",
                "cuts_total{what=\"queue_moves\"} 0",
            ],
        );
        for (step, cut) in Step::ALL.iter().zip(&Cut::ALL[1..]) {
            assert_eq!((step.label(), step.cut()), (cut.name(), *cut));
        }
    }

    #[test]
    fn a_counter_that_no_program_has_is_left_out() {
        let (metrics, registry) = metrics();
        let count = |counter, total| Count { counter, labels: vec!["active".to_owned()], total };
        metrics.set_counts(&[count("moves", 3), count("unregistered", 4)]);
        assert_has(&registry, &["moves_total{queue=\"active\"} 3"]);
        assert!(!registry.encode().contains("unregistered"));
    }
}
