//! The report about all rounds.

use anyhow::{Context as _, Result};
use harness::cost::{Cost, Costs, Mean, Ratios, Round, Spread, Way as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    options::{Detail, Options},
    round::{ATTEMPT_P50, ATTEMPT_P99, HITS, Way},
};

/// This schedspan relative to another one, by the rounds of the same turn.
#[derive(Deserialize, Serialize)]
struct Comparison {
    scheduler_cpu_ratio: Ratios,
    daemon_cpu_ratio: Ratios,
    cpu_ratio: Ratios,
    daemon_resident_ratio: Mean,
}

#[derive(Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) nodes: u32,
    pub(super) pace: u32,
    #[serde(flatten)]
    pub(super) costs: Costs,
    /// Only with `--against`.
    #[serde(default)]
    against: Option<Comparison>,
    /// Over all ways.
    single_stepped_hits_per_attempt: f64,
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
        let sites = |class: &str| {
            plan["sites"].as_array().into_iter().flatten().filter(|site| site["class"] == class).count()
        };
        Self {
            nodes,
            pace,
            costs: Costs::of("scheduler", pods, rounds),
            against: Comparison::of(rounds),
            single_stepped_hits_per_attempt,
            sites_emulated: sites("emulated"),
            sites_single_stepped: sites("single-stepped"),
            inspect_ms,
        }
    }

    pub(super) fn print(&self) {
        let Self { nodes, pace, costs, sites_emulated, sites_single_stepped, .. } = self;
        let Costs { pods, rounds, .. } = costs;
        println!("{nodes} Nodes, {pods} Pods a round at {pace} a second, {rounds} rounds of each way");
        costs.print();
        self.inspect_ms.print("inspect ms", "");
        if let Some(Comparison { scheduler_cpu_ratio, daemon_cpu_ratio, cpu_ratio, daemon_resident_ratio }) =
            &self.against
        {
            let means = [scheduler_cpu_ratio, daemon_cpu_ratio, cpu_ratio].map(|ratios| &ratios.calibrated);
            let [scheduler, daemon, both] = means;
            println!(
                "schedspan / against, geometric mean, calibrated: {scheduler} of the scheduler, {daemon} of the daemon, \
                 {both} of both; {daemon_resident_ratio} of the daemon's memory"
            );
        }
        println!(
            "sites: {sites_emulated} emulated, {sites_single_stepped} single-stepped; hits on the latter in an attempt: {:.2}",
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
            let mut ways = self.costs.ways.iter();
            ways.find(|cost| cost.way == name.name())
                .with_context(|| format!("{} was not measured", name.name()))
        };
        let (untraced, peer) = (way(Way::Untraced)?, way(Way::InProcess)?);
        let [full, plugins, phases] =
            [Detail::Full, Detail::Plugins, Detail::Phases].map(|detail| way(Way::Schedspan(detail)));
        let (full, plugins, phases) = (full?, plugins?, phases?);
        let hits = |cost: &Cost| of(cost.others.get(HITS), |hits| format!("{:.0}", hits.median));
        let daemon = |cost: &Cost| of(cost.daemon_cpu_ms_per_pod.as_ref(), Spread::text);
        let daemon_median = |cost: &Cost| of(cost.daemon_cpu_ms_per_pod.as_ref(), Spread::median_text);
        let tenths = |cost: &Cost, name| of(cost.others.get(name), |spread| format!("{:.1}", spread.median));
        Ok(vec![
            ("bench.hits.full", hits(full)?),
            ("bench.hits.plugins", hits(plugins)?),
            ("bench.hits.phases", hits(phases)?),
            ("bench.cpu.untraced", untraced.program_cpu_ms_per_pod.text()),
            ("bench.cpu.in-process", peer.program_cpu_ms_per_pod.text()),
            ("bench.cpu.schedspan", full.program_cpu_ms_per_pod.text()),
            ("bench.cpu.daemon.full", daemon(full)?),
            ("bench.cpu.daemon.plugins", daemon(plugins)?),
            ("bench.cpu.daemon.phases", daemon(phases)?),
            ("bench.cpu.daemon.full.median", daemon_median(full)?),
            ("bench.cpu.daemon.phases.median", daemon_median(phases)?),
            ("bench.cpu.daemon.about", of(full.daemon_cpu_ms_per_pod.as_ref(), Spread::tenths_around)?),
            ("bench.ratio.raw.in-process", peer.cpu_ratio.raw.text()),
            ("bench.ratio.raw.scheduler", full.program_cpu_ratio.raw.text()),
            ("bench.ratio.raw.both", full.cpu_ratio.raw.text()),
            ("bench.attempt.p50.untraced", tenths(untraced, ATTEMPT_P50)?),
            ("bench.attempt.p50.in-process", tenths(peer, ATTEMPT_P50)?),
            ("bench.attempt.p50.schedspan", tenths(full, ATTEMPT_P50)?),
            ("bench.attempt.p99.untraced", tenths(untraced, ATTEMPT_P99)?),
            ("bench.attempt.p99.in-process", tenths(peer, ATTEMPT_P99)?),
            ("bench.attempt.p99.schedspan", tenths(full, ATTEMPT_P99)?),
            ("bench.memory.scheduler", format!("{:.0}", untraced.program_resident_mib.median)),
            ("bench.ratio.in-process", peer.cpu_ratio.in_etcds_time.text()),
            ("bench.ratio.scheduler.full", full.program_cpu_ratio.in_etcds_time.text()),
            ("bench.ratio.scheduler.plugins", plugins.program_cpu_ratio.in_etcds_time.text()),
            ("bench.ratio.scheduler.phases", phases.program_cpu_ratio.in_etcds_time.text()),
            ("bench.ratio.both.full", full.cpu_ratio.in_etcds_time.text()),
            ("bench.ratio.both.plugins", plugins.cpu_ratio.in_etcds_time.text()),
            ("bench.ratio.both.phases", phases.cpu_ratio.in_etcds_time.text()),
            (
                "bench.memory.daemon",
                of(full.daemon_resident_mib.as_ref(), |memory| format!("{:.0}", memory.median))?,
            ),
            (
                "bench.memory.about",
                of(full.daemon_resident_mib.as_ref(), |memory| {
                    format!("{:.0}", (memory.median / 10.0).ceil() * 10.0)
                })?,
            ),
        ])
    }
}

/// The text of a figure that not all ways have.
fn of(spread: Option<&Spread>, text: impl Fn(&Spread) -> String) -> Result<String> {
    spread.map(text).context("a figure was not measured")
}

impl Comparison {
    /// `None` without rounds of both.
    fn of(rounds: &[(Way, Vec<Round>)]) -> Option<Self> {
        let (Way::Against(detail), theirs) = rounds.last()? else { return None };
        let (_, ours) = rounds.iter().find(|(way, _)| *way == Way::Schedspan(*detail))?;
        let pairs = ours.iter().zip(theirs);
        let resident = pairs.map(|(our, their)| {
            Some(our.daemon.as_ref()?.resident_mib / their.daemon.as_ref()?.resident_mib)
        });
        Some(Self {
            daemon_resident_ratio: Mean::of(&resident.collect::<Option<Vec<_>>>()?),
            scheduler_cpu_ratio: Ratios::of(ours, theirs, |round| round.cpu_ms_per_pod),
            daemon_cpu_ratio: Ratios::of(ours, theirs, |round| round.cpu() - round.cpu_ms_per_pod),
            cpu_ratio: Ratios::of(ours, theirs, Round::cpu),
        })
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
    use harness::cost::Daemon;

    use super::*;

    #[test]
    fn a_difference_has_the_error_of_its_mean() {
        let difference = Difference::of(&[0.1, 0.3, 0.2]);
        assert_eq!(difference.text(3), "0.200 ± 0.058");
        assert_eq!(Difference::of(&[-1.0, 1.0]).text(1), "0.0 ± 1.0");
    }

    #[test]
    fn another_schedspan_is_compared_by_turn_and_at_the_machines_speed() {
        let round = |computation_us, daemon: f64| Round {
            cpu_ms_per_pod: 2.0 * computation_us,
            computation_us,
            daemon: Some(Daemon { cpu_ms_per_pod: daemon * computation_us, resident_mib: 30.0, lost: 0.0 }),
            ..Round::default()
        };
        let ours = (Way::Schedspan(Detail::Full), vec![round(1.0, 0.1), round(2.0, 0.1)]);
        let theirs = (Way::Against(Detail::Full), vec![round(4.0, 0.2), round(1.0, 0.2)]);
        let compared = Comparison::of(&[ours, theirs]).expect("both have rounds");
        assert!((compared.daemon_cpu_ratio.calibrated.mean - 0.5).abs() < 1e-9);
        assert!((compared.scheduler_cpu_ratio.calibrated.mean - 1.0).abs() < 1e-9);
        assert!((compared.daemon_resident_ratio.mean - 1.0).abs() < 1e-9);
        assert!(Comparison::of(&[(Way::Untraced, vec![round(1.0, 0.0)])]).is_none());
    }
    #[test]
    fn a_result_that_was_stored_is_read_as_it_was() {
        let round = |cpu_ms_per_pod| Round {
            cpu_ms_per_pod,
            computation_us: 1.0,
            etcd_cpu_ms_per_pod: 1.0,
            ..Round::default()
        };
        let rounds = [
            (Way::Untraced, vec![round(2.0), round(3.0)]),
            (Way::Schedspan(Detail::Full), vec![round(2.1), round(3.3)]),
        ];
        let report = Report {
            nodes: 1000,
            pace: 50,
            costs: Costs::of("scheduler", 150, &rounds),
            against: Comparison::of(&rounds),
            single_stepped_hits_per_attempt: 0.0,
            sites_emulated: 80,
            sites_single_stepped: 7,
            inspect_ms: Spread::of([90.0]),
        };
        let text = serde_json::to_string(&report).expect("it has no keys but texts");
        let read: Report = serde_json::from_str(&text).expect("it is what was written");
        let ratio = |report: &Report| report.costs.ways[1].cpu_ratio.calibrated.text();
        assert_eq!(ratio(&read), ratio(&report));
        assert_eq!((read.costs.program.as_str(), read.costs.pods, read.nodes), ("scheduler", 150, 1000));
    }
}
