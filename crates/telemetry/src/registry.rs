//! The registry of a process, and metrics whose labels are typed.

use std::{
    borrow::Cow,
    fmt,
    marker::PhantomData,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    encoding::{EncodeLabelValue, LabelValueEncoder, text},
    metrics::{
        counter::Counter,
        exemplar::HistogramWithExemplars,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{self, Unit},
};

use crate::{Label, process::Process};

/// `Content-Type` of [`Registry::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A gauge of any number.
pub type Ratio = Gauge<f64, AtomicU64>;

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// All metrics of a process. Clones are handles of the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Mutex<Metrics>>);

struct Metrics {
    /// Metrics with the prefix `schedspan_`.
    own: registry::Registry,
    /// Metrics of the process, which have no prefix.
    process: registry::Registry,
    losses: Option<Family<Labels<1>, Counter>>,
    /// All causes of losses, in the order of their registration.
    causes: Vec<(&'static str, Counter)>,
}

impl Default for Registry {
    fn default() -> Self {
        let mut own = registry::Registry::with_prefix("schedspan");
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        own.register("build", "Version of schedspan", Info::new(version));
        let mut process = registry::Registry::default();
        process.register_collector(Box::new(Process::default()));
        Self(Arc::new(Mutex::new(Metrics { own, process, losses: None, causes: Vec::new() })))
    }
}

impl Registry {
    /// Registers a counter.
    #[must_use]
    pub fn counter(&self, name: &str, help: &str) -> Counter {
        let metric = Counter::default();
        self.metrics().own.register(name, help, metric.clone());
        metric
    }

    /// Registers a gauge.
    #[must_use]
    pub fn gauge(&self, name: &str, help: &str) -> Gauge {
        let metric = Gauge::default();
        self.metrics().own.register(name, help, metric.clone());
        metric
    }

    /// Registers a gauge of a ratio.
    #[must_use]
    pub fn ratio(&self, name: &str, help: &str) -> Ratio {
        let metric = Ratio::default();
        self.metrics().own.register(name, help, metric.clone());
        metric
    }

    /// Registers a histogram with these upper bounds of its buckets.
    #[must_use]
    pub fn histogram<const N: usize>(&self, name: &str, help: &str, buckets: [f64; N]) -> Histogram {
        let metric = Histogram::new(buckets);
        self.metrics().own.register(name, help, metric.clone());
        metric
    }

    /// Registers a counter for each value of a label, under this key.
    #[must_use]
    pub fn counters<L: Label>(&self, name: &str, help: &str, key: &'static str) -> Counters<L> {
        let family = Family::<Labels<1>, Counter>::default();
        self.metrics().own.register(name, help, family.clone());
        let counter = |value: &L| family.get_or_create_owned(&[(key, value.label().into())]);
        Counters { all: L::ALL.iter().map(counter).collect(), label: PhantomData }
    }

    /// Registers a gauge for each value of a label, under this key.
    #[must_use]
    pub fn gauges<L: Label>(&self, name: &str, help: &str, key: &'static str) -> Gauges<L> {
        let family = Family::<Labels<1>, Gauge>::default();
        self.metrics().own.register(name, help, family.clone());
        let gauge = |value: &L| family.get_or_create_owned(&[(key, value.label().into())]);
        Gauges { all: L::ALL.iter().map(gauge).collect(), label: PhantomData }
    }

    /// Registers counters whose label values are not known in advance. Callers bound the number of values.
    #[must_use]
    pub fn labelled<const N: usize>(&self, name: &str, help: &str, keys: [&'static str; N]) -> Labelled<N> {
        let family = Family::<Labels<N>, Counter>::default();
        self.metrics().own.register(name, help, family.clone());
        Labelled { family, keys }
    }

    /// Registers histograms of seconds. Callers bound the number of label values.
    #[must_use]
    pub fn durations<const N: usize>(
        &self,
        name: &str,
        help: &str,
        keys: [&'static str; N],
        buckets: Buckets,
    ) -> Durations<N> {
        let family = Family::new_with_constructor(buckets);
        self.metrics().own.register_with_unit(name, help, Unit::Seconds, family.clone());
        Durations { family, keys }
    }

    /// Registers counters of seconds, whose totals are counted elsewhere. Callers bound the number of label values.
    #[must_use]
    pub fn seconds<const N: usize>(&self, name: &str, help: &str, keys: [&'static str; N]) -> Seconds<N> {
        let family = Family::<Labels<N>, Counter<f64, AtomicU64>>::default();
        self.metrics().own.register_with_unit(name, help, Unit::Seconds, family.clone());
        Seconds { family, keys }
    }

    /// Registers a counter of seconds, whose total is counted elsewhere.
    #[must_use]
    pub fn seconds_in_all(&self, name: &str, help: &str) -> SecondsInAll {
        let metric = Counter::default();
        self.metrics().own.register_with_unit(name, help, Unit::Seconds, metric.clone());
        SecondsInAll(metric)
    }

    /// Registers counters whose keys are data, and whose totals are counted elsewhere. Callers bound the number of values.
    #[must_use]
    pub fn totals(&self, name: &str, help: &str, keys: &'static [&'static str]) -> Totals {
        let family = Family::<Vec<(&'static str, String)>, Counter>::default();
        self.metrics().own.register(name, help, family.clone());
        Totals { family, keys }
    }

    /// Registers causes of losses: further values of the label `cause` of `schedspan_losses_total`.
    ///
    /// # Panics
    ///
    /// If a cause is registered twice: two counters of one name would hide each other.
    #[must_use]
    pub fn losses<L: Label>(&self) -> Counters<L> {
        let mut metrics = self.metrics();
        let family = metrics.losses.clone().unwrap_or_else(|| {
            let family = Family::default();
            metrics.own.register("losses", "What was lost, by cause", family.clone());
            metrics.losses.insert(family).clone()
        });
        let counters: Arc<[Counter]> = L::ALL
            .iter()
            .map(|cause| family.get_or_create_owned(&[("cause", cause.label().into())]))
            .collect();
        for (cause, counter) in L::ALL.iter().map(|cause| cause.label()).zip(&*counters) {
            assert!(metrics.causes.iter().all(|(known, _)| *known != cause), "`{cause}` is registered twice");
            metrics.causes.push((cause, counter.clone()));
        }
        Counters { all: counters, label: PhantomData }
    }

    /// All losses so far by cause, zeros included, in the order of their registration.
    #[must_use]
    pub fn lost(&self) -> Vec<(&'static str, u64)> {
        self.metrics().causes.iter().map(|(cause, counter)| (*cause, counter.get())).collect()
    }

    /// All metrics as OpenMetrics text, of [`CONTENT_TYPE`].
    #[must_use]
    pub fn encode(&self) -> String {
        let metrics = self.metrics();
        let mut out = String::new();
        // Writing into a string fails only if a metric's own encoding does, and those are the library's.
        text::encode_registry(&mut out, &metrics.own)
            .and_then(|()| text::encode_registry(&mut out, &metrics.process))
            .and_then(|()| text::encode_eof(&mut out))
            .expect("metrics become text");
        out
    }

    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// Labels with these values, one for each key.
fn labels<const N: usize>(keys: [&'static str; N], values: [Cow<'static, str>; N]) -> Labels<N> {
    let mut values = values.into_iter();
    keys.map(|key| (key, values.next().unwrap_or_default()))
}

/// A counter for each value of a closed label. Clones are handles of the same counters.
#[derive(Clone, Debug)]
pub struct Counters<L> {
    /// In the order of [`Label::ALL`].
    all: Arc<[Counter]>,
    label: PhantomData<L>,
}

impl<L: Label> Counters<L> {
    /// Adds to one counter.
    pub fn add(&self, value: L, count: u64) {
        self.all[value.index()].inc_by(count);
    }

    /// Sets one counter to a total that is counted elsewhere.
    pub fn set(&self, value: L, total: u64) {
        self.all[value.index()].inner().store(total, Ordering::Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self, value: L) -> u64 {
        self.all[value.index()].get()
    }
}

/// Counters of seconds. Clones are handles of the same counters.
#[derive(Clone, Debug)]
pub struct Seconds<const N: usize> {
    family: Family<Labels<N>, Counter<f64, AtomicU64>>,
    keys: [&'static str; N],
}

impl<const N: usize> Seconds<N> {
    /// Sets the counter with these label values to a total.
    pub fn set(&self, values: [Cow<'static, str>; N], seconds: f64) {
        let labels = labels(self.keys, values);
        self.family.get_or_create_owned(&labels).inner().store(seconds.to_bits(), Ordering::Relaxed);
    }
}

/// A counter of seconds. Clones are handles of the same counter.
#[derive(Clone, Debug)]
pub struct SecondsInAll(Counter<f64, AtomicU64>);

impl SecondsInAll {
    /// Sets it to a total.
    pub fn set(&self, seconds: f64) {
        self.0.inner().store(seconds.to_bits(), Ordering::Relaxed);
    }
}

/// Upper bounds of a histogram's buckets, seconds: `first`, and each next one `factor` times as much.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The lowest bound.
    pub first: f64,
    /// From one bound to the next.
    pub factor: f64,
    /// Number of bounds.
    pub count: u16,
}

impl MetricConstructor<HistogramWithExemplars<InTrace>> for Buckets {
    fn new_metric(&self) -> HistogramWithExemplars<InTrace> {
        HistogramWithExemplars::new(exponential_buckets(self.first, self.factor, self.count))
    }
}

/// Histograms of seconds with labels of any value. Clones are handles of the same histograms.
#[derive(Clone, Debug)]
pub struct Durations<const N: usize> {
    family: Family<Labels<N>, HistogramWithExemplars<InTrace>, Buckets>,
    keys: [&'static str; N],
}

impl<const N: usize> Durations<N> {
    /// The histogram with these values, one for each key.
    #[must_use]
    pub fn of(&self, values: [Cow<'static, str>; N]) -> Duration {
        let labels = labels(self.keys, values);
        Duration(self.family.get_or_create_owned(&labels))
    }
}

/// A histogram of seconds. Clones are handles of the same histogram.
#[derive(Clone, Debug)]
pub struct Duration(HistogramWithExemplars<InTrace>);

impl Duration {
    /// Adds a duration. The trace that shows it becomes the exemplar of its bucket.
    pub fn observe(&self, seconds: f64, trace_id: Option<[u8; 16]>) {
        self.0.observe(seconds, trace_id.map(|id| [("trace_id", TraceId(id))]), None);
    }
}

/// The labels of an exemplar, as Grafana knows them.
type InTrace = [(&'static str, TraceId); 1];

/// A trace id, which is text only when it is asked for.
#[derive(Clone, Copy, Debug)]
struct TraceId([u8; 16]);

impl EncodeLabelValue for TraceId {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        fmt::Write::write_fmt(encoder, format_args!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

/// A gauge for each value of a closed label. Clones are handles of the same gauges.
#[derive(Clone, Debug)]
pub struct Gauges<L> {
    /// In the order of [`Label::ALL`].
    all: Arc<[Gauge]>,
    label: PhantomData<L>,
}

impl<L: Label> Gauges<L> {
    /// Sets one gauge.
    pub fn set(&self, value: L, to: i64) {
        self.all[value.index()].set(to);
    }
}

/// Counters with labels of any value. Clones are handles of the same counters.
#[derive(Clone, Debug)]
pub struct Labelled<const N: usize> {
    family: Family<Labels<N>, Counter>,
    keys: [&'static str; N],
}

impl<const N: usize> Labelled<N> {
    /// The counter with these values, one for each key.
    #[must_use]
    pub fn of(&self, values: [Cow<'static, str>; N]) -> Counter {
        self.family.get_or_create_owned(&labels(self.keys, values))
    }

    /// Adds to the counter with these values, one for each key.
    pub fn add(&self, values: [Cow<'static, str>; N], count: u64) {
        self.of(values).inc_by(count);
    }
}

/// Totals that are counted elsewhere, with labels of any value. Clones are handles of the same counters.
#[derive(Clone, Debug)]
pub struct Totals {
    family: Family<Vec<(&'static str, String)>, Counter>,
    keys: &'static [&'static str],
}

impl Totals {
    /// Sets the counter with these values, one for each key, to a total.
    pub fn set(&self, values: &[String], total: u64) {
        let labels = self.keys.iter().copied().zip(values.iter().cloned()).collect();
        self.family.get_or_create(&labels).inner().store(total, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::labels! {
        /// Two causes.
        Cause {
            /// One.
            Full = "full",
            /// The other.
            Torn = "torn",
        }
    }

    crate::labels! {
        /// A cause of another crate.
        Other {
            /// The only one.
            Late = "late",
        }
    }

    #[test]
    fn losses_of_all_crates_are_one_family_with_zeros_from_the_start() {
        let registry = Registry::default();
        assert!(!registry.encode().contains("schedspan_losses"), "a process without losses exports none");
        let (causes, others) = (registry.losses::<Cause>(), registry.losses::<Other>());
        causes.add(Cause::Torn, 2);
        causes.add(Cause::Torn, 3);
        others.set(Other::Late, 7);
        assert_eq!(registry.lost(), [("full", 0), ("torn", 5), ("late", 7)]);
        let text = registry.encode();
        for line in ["{cause=\"full\"} 0", "{cause=\"torn\"} 5", "{cause=\"late\"} 7"] {
            assert!(text.contains(&format!("schedspan_losses_total{line}\n")), "{line} is not in {text}");
        }
        assert_eq!(text.matches("# HELP schedspan_losses What was lost, by cause.\n").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    #[should_panic(expected = "registered twice")]
    fn a_cause_belongs_to_one_crate() {
        let registry = Registry::default();
        let _first = registry.losses::<Cause>();
        let _second = registry.losses::<Cause>();
    }

    #[test]
    fn a_duration_is_in_its_bucket_with_the_last_trace_that_shows_it() {
        let registry = Registry::default();
        let buckets = Buckets { first: 0.001, factor: 10.0, count: 2 };
        let durations = registry.durations("phase_duration", "Durations of phases", ["phase"], buckets);
        let filter = durations.of(["filter".into()]);
        for (seconds, trace_id) in
            [(0.0005, Some(1)), (0.002, Some(2)), (0.003, Some(3)), (0.004, None), (5.0, None)]
        {
            filter.observe(seconds, trace_id.map(|id| u128::to_be_bytes(0xab << 120 | id)));
        }
        let text = registry.encode();
        for line in [
            "# TYPE schedspan_phase_duration_seconds histogram\n",
            "schedspan_phase_duration_seconds_sum{phase=\"filter\"} 5.0095\n",
            "schedspan_phase_duration_seconds_count{phase=\"filter\"} 5\n",
            "{le=\"0.001\",phase=\"filter\"} 1 # {trace_id=\"ab000000000000000000000000000001\"} 0.0005\n",
            "{le=\"0.01\",phase=\"filter\"} 4 # {trace_id=\"ab000000000000000000000000000003\"} 0.003\n",
            "{le=\"+Inf\",phase=\"filter\"} 5\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn the_version_and_the_process_are_exported() {
        let text = Registry::default().encode();
        let version = concat!("schedspan_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1");
        assert!(text.lines().any(|line| line == version), "{text}");
        for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value > 0.0), "{name} is {value:?}: {text}");
        }
    }
}
