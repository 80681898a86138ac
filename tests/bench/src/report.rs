//! The report about all rounds.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    options::{Detail, Options},
    round::{Daemon, Round, Way},
};

/// The distribution of a figure.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The mean of a ratio.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Mean {
    /// The geometric mean, in which a ratio and its inverse cancel out, so that noise does not look like a cost.
    pub(super) mean: f64,
    /// The relative standard error of the mean; `None` for a single reading.
    pub(super) standard_error: Option<f64>,
}

/// The cost of a way.
#[derive(Deserialize, Serialize)]
pub(super) struct Cost {
    pub(super) way: String,
    pub(super) scheduler_cpu_ms_per_pod: Spread,
    pub(super) daemon_cpu_ms_per_pod: Option<Spread>,
    /// Of scheduler and daemon.
    pub(super) cpu_ms_per_pod: Spread,
    /// The scheduler's CPU time relative to the untraced round of the same turn.
    pub(super) scheduler_cpu_ratio: Mean,
    /// The CPU time of both relative to the same.
    pub(super) cpu_ratio: Mean,
    /// The two ratios with each round's CPU time divided by etcd's in that round.
    pub(super) steadied_scheduler_cpu_ratio: Mean,
    pub(super) steadied_cpu_ratio: Mean,
    etcd_cpu_ms_per_pod: Spread,
    pub(super) pods_per_second: Spread,
    pub(super) attempt_p50_ms: Spread,
    pub(super) attempt_p99_ms: Spread,
    pub(super) scheduler_resident_mib: Spread,
    pub(super) daemon_resident_mib: Option<Spread>,
    pub(super) resident_mib: Spread,
    hits_per_attempt: Option<Spread>,
    records_per_attempt: Option<Spread>,
    samples_percent: Option<Spread>,
    windows_percent: Option<Spread>,
    windows_per_1000: Option<Spread>,
}

/// This schedspan relative to another one, by the rounds of the same turn; CPU times in etcd's time.
#[derive(Deserialize, Serialize)]
struct Comparison {
    scheduler_cpu_ratio: Mean,
    daemon_cpu_ratio: Mean,
    cpu_ratio: Mean,
    daemon_resident_ratio: Mean,
}

/// A figure that ways may have.
type Figure = (&'static str, fn(&Cost) -> Option<&Spread>);

#[derive(Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) nodes: u32,
    pub(super) pods: u32,
    pub(super) pace: u32,
    pub(super) rounds: u32,
    /// Untraced first.
    pub(super) ways: Vec<Cost>,
    /// Only with `--against`.
    #[serde(default)]
    against: Option<Comparison>,
    /// Over all ways.
    single_stepped_hits_per_attempt: f64,
    pub(super) lost: f64,
    sites_emulated: usize,
    sites_single_stepped: usize,
    inspect_ms: Spread,
}

impl Report {
    /// Requires at least one round of each way, untraced first.
    pub(super) fn of(
        options: &Options,
        rounds: &[(Way, Vec<Round>)],
        plan: &Value,
        single_stepped_hits_per_attempt: f64,
        inspect_ms: Spread,
    ) -> Self {
        let Options { nodes, pods, pace, .. } = *options;
        let untraced = &rounds[0].1;
        let daemons = rounds.iter().flat_map(|(_, rounds)| rounds).filter_map(|round| round.daemon.as_ref());
        let sites = |class: &str| {
            plan["sites"].as_array().into_iter().flatten().filter(|site| site["class"] == class).count()
        };
        Self {
            nodes,
            pods,
            pace,
            rounds: options.rounds,
            ways: rounds.iter().map(|(way, rounds)| Cost::of(*way, rounds, untraced)).collect(),
            against: Comparison::of(rounds),
            single_stepped_hits_per_attempt,
            lost: daemons.map(|daemon| daemon.lost).sum(),
            sites_emulated: sites("emulated"),
            sites_single_stepped: sites("single-stepped"),
            inspect_ms,
        }
    }

    pub(super) fn print(&self) {
        let Self { nodes, pods, pace, rounds, lost, sites_emulated, sites_single_stepped, .. } = self;
        println!("{nodes} Nodes, {pods} Pods a round at {pace} a second, {rounds} rounds of each way");
        println!("{:<32} {:<18} {:>10} {:>10} {:>10}", "", "", "MEDIAN", "MIN", "MAX");
        let rows: [Figure; 15] = [
            ("scheduler CPU ms/Pod", |cost| Some(&cost.scheduler_cpu_ms_per_pod)),
            ("schedspan CPU ms/Pod", |cost| cost.daemon_cpu_ms_per_pod.as_ref()),
            ("both CPU ms/Pod", |cost| Some(&cost.cpu_ms_per_pod)),
            ("etcd CPU ms/Pod", |cost| Some(&cost.etcd_cpu_ms_per_pod)),
            ("Pods/s", |cost| Some(&cost.pods_per_second)),
            ("attempt ms, p50", |cost| Some(&cost.attempt_p50_ms)),
            ("attempt ms, p99", |cost| Some(&cost.attempt_p99_ms)),
            ("scheduler resident MiB", |cost| Some(&cost.scheduler_resident_mib)),
            ("schedspan resident MiB", |cost| cost.daemon_resident_mib.as_ref()),
            ("both resident MiB", |cost| Some(&cost.resident_mib)),
            ("hits/attempt", |cost| cost.hits_per_attempt.as_ref()),
            ("records/attempt", |cost| cost.records_per_attempt.as_ref()),
            ("% of CPU: samples", |cost| cost.samples_percent.as_ref()),
            ("% of CPU: windows", |cost| cost.windows_percent.as_ref()),
            ("windows/1,000 attempts", |cost| cost.windows_per_1000.as_ref()),
        ];
        for (name, spread) in rows {
            for cost in &self.ways {
                if let Some(spread) = spread(cost) {
                    spread.print(name, &cost.way);
                }
            }
        }
        self.inspect_ms.print("inspect ms", "");
        for cost in self.ways.iter().skip(1) {
            let means = [
                ("", &cost.scheduler_cpu_ratio, &cost.cpu_ratio),
                (", in etcd's time", &cost.steadied_scheduler_cpu_ratio, &cost.steadied_cpu_ratio),
            ];
            for (measure, scheduler, both) in means {
                println!(
                    "{} / untraced, geometric mean{measure}: {scheduler} of the scheduler, {both} of both",
                    cost.way
                );
            }
        }
        if let Some(Comparison { scheduler_cpu_ratio, daemon_cpu_ratio, cpu_ratio, daemon_resident_ratio }) =
            &self.against
        {
            println!(
                "schedspan / against, geometric mean, in etcd's time: {scheduler_cpu_ratio} of the scheduler, \
                 {daemon_cpu_ratio} of the daemon, {cpu_ratio} of both; {daemon_resident_ratio} of the daemon's memory"
            );
        }
        println!(
            "sites: {sites_emulated} emulated, {sites_single_stepped} single-stepped; hits on the latter in an attempt: {:.2}; lost: {lost}",
            self.single_stepped_hits_per_attempt
        );
    }
}

impl Report {
    /// The figures that documents state, as docs/figures.tsv has them.
    ///
    /// # Errors
    ///
    /// If a way is missing.
    pub(super) fn figures(&self) -> Result<Vec<(&'static str, String)>> {
        let way = |name: Way| {
            let mut ways = self.ways.iter();
            ways.find(|cost| cost.way == name.name())
                .with_context(|| format!("{} was not measured", name.name()))
        };
        let (untraced, peer) = (way(Way::Untraced)?, way(Way::InProcess)?);
        let [full, plugins, phases] =
            [Detail::Full, Detail::Plugins, Detail::Phases].map(|detail| way(Way::Schedspan(detail)));
        let (full, plugins, phases) = (full?, plugins?, phases?);
        let hits = |cost: &Cost| of(cost.hits_per_attempt.as_ref(), |hits| format!("{:.0}", hits.median));
        let daemon = |cost: &Cost| of(cost.daemon_cpu_ms_per_pod.as_ref(), Spread::text);
        let daemon_median = |cost: &Cost| of(cost.daemon_cpu_ms_per_pod.as_ref(), Spread::median_text);
        let tenths = |spread: &Spread| format!("{:.1}", spread.median);
        Ok(vec![
            ("bench.hits.full", hits(full)?),
            ("bench.hits.plugins", hits(plugins)?),
            ("bench.hits.phases", hits(phases)?),
            ("bench.cpu.untraced", untraced.scheduler_cpu_ms_per_pod.text()),
            ("bench.cpu.in-process", peer.scheduler_cpu_ms_per_pod.text()),
            ("bench.cpu.schedspan", full.scheduler_cpu_ms_per_pod.text()),
            ("bench.cpu.daemon.full", daemon(full)?),
            ("bench.cpu.daemon.plugins", daemon(plugins)?),
            ("bench.cpu.daemon.phases", daemon(phases)?),
            ("bench.cpu.daemon.full.median", daemon_median(full)?),
            ("bench.cpu.daemon.phases.median", daemon_median(phases)?),
            ("bench.cpu.daemon.about", of(full.daemon_cpu_ms_per_pod.as_ref(), Spread::tenths_around)?),
            ("bench.ratio.raw.in-process", peer.cpu_ratio.text()),
            ("bench.ratio.raw.scheduler", full.scheduler_cpu_ratio.text()),
            ("bench.ratio.raw.both", full.cpu_ratio.text()),
            ("bench.attempt.p50.untraced", tenths(&untraced.attempt_p50_ms)),
            ("bench.attempt.p50.in-process", tenths(&peer.attempt_p50_ms)),
            ("bench.attempt.p50.schedspan", tenths(&full.attempt_p50_ms)),
            ("bench.attempt.p99.untraced", tenths(&untraced.attempt_p99_ms)),
            ("bench.attempt.p99.in-process", tenths(&peer.attempt_p99_ms)),
            ("bench.attempt.p99.schedspan", tenths(&full.attempt_p99_ms)),
            ("bench.memory.scheduler", format!("{:.0}", untraced.scheduler_resident_mib.median)),
            ("bench.ratio.in-process", peer.steadied_cpu_ratio.text()),
            ("bench.ratio.scheduler.full", full.steadied_scheduler_cpu_ratio.text()),
            ("bench.ratio.scheduler.plugins", plugins.steadied_scheduler_cpu_ratio.text()),
            ("bench.ratio.scheduler.phases", phases.steadied_scheduler_cpu_ratio.text()),
            ("bench.ratio.both.full", full.steadied_cpu_ratio.text()),
            ("bench.ratio.both.plugins", plugins.steadied_cpu_ratio.text()),
            ("bench.ratio.both.phases", phases.steadied_cpu_ratio.text()),
            (
                "bench.memory.daemon",
                of(full.daemon_resident_mib.as_ref(), |memory| format!("{:.0}", memory.median))?,
            ),
            (
                "bench.memory.about",
                of(full.daemon_resident_mib.as_ref(), |memory| {
                    format!("{:.0}", (memory.median / 10.0).round() * 10.0)
                })?,
            ),
        ])
    }
}

/// The text of a figure that only ways with a daemon have.
fn of(spread: Option<&Spread>, text: impl Fn(&Spread) -> String) -> Result<String> {
    spread.map(text).context("a round had no daemon")
}

impl Comparison {
    /// `None` without rounds of both.
    fn of(rounds: &[(Way, Vec<Round>)]) -> Option<Self> {
        let (Way::Against(detail), theirs) = rounds.last()? else { return None };
        let (_, ours) = rounds.iter().find(|(way, _)| *way == Way::Schedspan(*detail))?;
        let ratio = |value: &dyn Fn(&Round) -> Option<f64>| {
            let pairs = ours.iter().zip(theirs);
            let ratios: Option<Vec<_>> =
                pairs.map(|(our, their)| Some(value(our)? / value(their)?)).collect();
            Some(Mean::of(&ratios?))
        };
        let daemon = |round: &Round| Some(round.daemon.as_ref()?.cpu_ms_per_pod / round.etcd_cpu_ms_per_pod);
        Some(Self {
            scheduler_cpu_ratio: ratio(&|round| Some(round.cpu_ms_per_pod / round.etcd_cpu_ms_per_pod))?,
            daemon_cpu_ratio: ratio(&daemon)?,
            cpu_ratio: ratio(&|round| Some(round.cpu() / round.etcd_cpu_ms_per_pod))?,
            daemon_resident_ratio: ratio(&|round| Some(round.daemon.as_ref()?.resident_mib))?,
        })
    }
}

impl Cost {
    fn of(way: Way, rounds: &[Round], untraced: &[Round]) -> Self {
        let of = |value: fn(&Round) -> f64| Spread::of(rounds.iter().map(value));
        let of_daemon = |value: fn(&Daemon) -> f64| {
            let readings: Vec<_> =
                rounds.iter().filter_map(|round| round.daemon.as_ref().map(value)).collect();
            (!readings.is_empty()).then(|| Spread::of(readings))
        };
        let ratio = |value: &dyn Fn(&Round) -> f64| {
            let ratios: Vec<_> =
                rounds.iter().zip(untraced).map(|(round, other)| value(round) / value(other)).collect();
            Mean::of(&ratios)
        };
        let scheduler = |round: &Round| round.cpu_ms_per_pod;
        Self {
            way: way.name().to_owned(),
            scheduler_cpu_ms_per_pod: of(|round| round.cpu_ms_per_pod),
            daemon_cpu_ms_per_pod: of_daemon(|daemon| daemon.cpu_ms_per_pod),
            cpu_ms_per_pod: of(Round::cpu),
            scheduler_cpu_ratio: ratio(&scheduler),
            cpu_ratio: ratio(&Round::cpu),
            steadied_scheduler_cpu_ratio: ratio(&|round| scheduler(round) / round.etcd_cpu_ms_per_pod),
            steadied_cpu_ratio: ratio(&|round| round.cpu() / round.etcd_cpu_ms_per_pod),
            etcd_cpu_ms_per_pod: of(|round| round.etcd_cpu_ms_per_pod),
            pods_per_second: of(|round| round.pods_per_second),
            attempt_p50_ms: of(|round| round.attempt_p50_ms),
            attempt_p99_ms: of(|round| round.attempt_p99_ms),
            scheduler_resident_mib: of(|round| round.resident_mib),
            daemon_resident_mib: of_daemon(|daemon| daemon.resident_mib),
            resident_mib: of(Round::resident),
            hits_per_attempt: of_daemon(|daemon| daemon.hits_per_attempt),
            records_per_attempt: of_daemon(|daemon| daemon.records_per_attempt),
            samples_percent: of_daemon(|daemon| daemon.samples_percent),
            windows_percent: of_daemon(|daemon| daemon.windows_percent),
            windows_per_1000: of_daemon(|daemon| daemon.windows_per_1000),
        }
    }
}

impl Round {
    fn cpu(&self) -> f64 {
        self.cpu_ms_per_pod + self.daemon.as_ref().map_or(0.0, |daemon| daemon.cpu_ms_per_pod)
    }

    fn resident(&self) -> f64 {
        self.resident_mib + self.daemon.as_ref().map_or(0.0, |daemon| daemon.resident_mib)
    }
}

impl Spread {
    /// Requires at least one reading.
    pub(super) fn of(readings: impl IntoIterator<Item = f64>) -> Self {
        let mut readings: Vec<_> = readings.into_iter().collect();
        readings.sort_by(f64::total_cmp);
        let last = readings.len() - 1;
        let median = f64::midpoint(readings[last / 2], readings[last.div_ceil(2)]);
        Self { median, min: readings[0], max: readings[last] }
    }

    /// As documents state it.
    fn text(&self) -> String {
        format!("{:.2} ({:.2} to {:.2})", self.median, self.min, self.max)
    }

    fn median_text(&self) -> String {
        format!("{:.2}", self.median)
    }

    /// The tenths below and above the median.
    fn tenths_around(&self) -> String {
        let tenth = (self.median * 10.0).floor() / 10.0;
        format!("{tenth:.1} to {:.1}", tenth + 0.1)
    }

    fn print(&self, name: &str, way: &str) {
        let Self { median, min, max } = self;
        println!("{name:<32} {way:<18} {median:>10.3} {min:>10.3} {max:>10.3}");
    }
}

impl Mean {
    /// Requires at least one ratio.
    fn of(ratios: &[f64]) -> Self {
        let count = ratios.len() as f64;
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count;
        let squares: f64 = ratios.iter().map(|ratio| (ratio.ln() - mean).powi(2)).sum();
        let standard_error = (ratios.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
        Self { mean: mean.exp(), standard_error }
    }

    /// As documents state it.
    fn text(&self) -> String {
        let error = self.standard_error.map(|error| format!(" ± {error:.3}"));
        format!("{:.3}{}", self.mean, error.unwrap_or_default())
    }
}

impl std::fmt::Display for Mean {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mean, standard_error } = self;
        write!(f, "{mean:.3}")?;
        standard_error.map_or(Ok(()), |error| write!(f, " (standard error {error:.3})"))
    }
}

/// The mean of differences.
pub(super) struct Difference {
    pub(super) mean: f64,
    standard_error: f64,
}

impl Difference {
    /// Requires at least two readings.
    pub(super) fn of(readings: &[f64]) -> Self {
        let count = readings.len() as f64;
        let mean = readings.iter().sum::<f64>() / count;
        let squares: f64 = readings.iter().map(|reading| (reading - mean).powi(2)).sum();
        Self { mean, standard_error: (squares / (count - 1.0) / count).sqrt() }
    }

    /// As documents state it, with so many decimals.
    pub(super) fn text(&self, decimals: usize) -> String {
        let Self { mean, standard_error } = self;
        format!("{mean:.decimals$} ± {standard_error:.decimals$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let Spread { median, min, max } = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((median, min, max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([7.0]).median, 7.0);
    }

    #[test]
    fn noise_in_both_directions_cancels_out() {
        let Mean { mean, standard_error } = Mean::of(&[0.5, 2.0, 1.0]);
        assert!((mean - 1.0).abs() < 1e-12, "{mean}");
        // The logarithms are -0.693, 0.693 and 0.
        assert!((standard_error.unwrap_or_default() - 0.4002).abs() < 1e-4, "{standard_error:?}");
        assert_eq!(Mean::of(&[1.5]).standard_error, None);
    }

    #[test]
    fn a_difference_has_the_error_of_its_mean() {
        let difference = Difference::of(&[0.1, 0.3, 0.2]);
        assert_eq!(difference.text(3), "0.200 ± 0.058");
        assert_eq!(Difference::of(&[-1.0, 1.0]).text(1), "0.0 ± 1.0");
    }

    #[test]
    fn the_cost_of_a_way_is_that_of_scheduler_and_daemon() {
        let round = |cpu_ms_per_pod, etcd_cpu_ms_per_pod, daemon: Option<f64>| Round {
            cpu_ms_per_pod,
            etcd_cpu_ms_per_pod,
            resident_mib: 50.0,
            daemon: daemon.map(|cpu_ms_per_pod| Daemon {
                cpu_ms_per_pod,
                resident_mib: 30.0,
                hits_per_attempt: 82.0,
                records_per_attempt: 82.0,
                samples_percent: 0.1,
                windows_percent: 0.0,
                windows_per_1000: 0.0,
                lost: 0.0,
            }),
            ..Round::default()
        };
        let cost =
            Cost::of(Way::Schedspan(Detail::Full), &[round(2.2, 1.1, Some(0.3))], &[round(2.0, 1.0, None)]);
        assert_eq!((cost.cpu_ms_per_pod.median, cost.resident_mib.median), (2.5, 80.0));
        assert!(
            (cost.cpu_ratio.mean - 1.25).abs() < 1e-9 && (cost.scheduler_cpu_ratio.mean - 1.1).abs() < 1e-9
        );
        // Everything was slower by the same factor.
        assert!((cost.steadied_scheduler_cpu_ratio.mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn figures_are_as_documents_state_them() {
        assert_eq!(Spread::of([4.806, 3.66, 5.494]).text(), "4.81 (3.66 to 5.49)");
        assert_eq!(Spread::of([0.366]).median_text(), "0.37");
        assert_eq!(Spread::of([0.366]).tenths_around(), "0.3 to 0.4");
        assert_eq!(Mean { mean: 1.0514, standard_error: Some(0.0139) }.text(), "1.051 ± 0.014");
        assert_eq!(Mean { mean: 1.0514, standard_error: None }.text(), "1.051");
    }

    #[test]
    fn another_schedspan_is_compared_by_turn_and_in_etcds_time() {
        let round = |etcd_cpu_ms_per_pod, daemon: f64| Round {
            cpu_ms_per_pod: 2.0 * etcd_cpu_ms_per_pod,
            etcd_cpu_ms_per_pod,
            daemon: Some(Daemon {
                cpu_ms_per_pod: daemon * etcd_cpu_ms_per_pod,
                resident_mib: 30.0,
                hits_per_attempt: 51.0,
                records_per_attempt: 51.0,
                samples_percent: 0.1,
                windows_percent: 0.0,
                windows_per_1000: 0.0,
                lost: 0.0,
            }),
            ..Round::default()
        };
        let ours = (Way::Schedspan(Detail::Full), vec![round(1.0, 0.1), round(2.0, 0.1)]);
        let theirs = (Way::Against(Detail::Full), vec![round(4.0, 0.2), round(1.0, 0.2)]);
        let compared = Comparison::of(&[ours, theirs]).expect("both have rounds");
        assert!((compared.daemon_cpu_ratio.mean - 0.5).abs() < 1e-9);
        assert!((compared.scheduler_cpu_ratio.mean - 1.0).abs() < 1e-9);
        assert!((compared.daemon_resident_ratio.mean - 1.0).abs() < 1e-9);
        assert!(Comparison::of(&[(Way::Untraced, vec![round(1.0, 0.0)])]).is_none());
    }
}
