//! What tracing costs a program: rounds of several ways in turn, and the report about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    calibration::{Calibration, Computed},
    metrics::Metrics,
};

/// Standard errors by which a ratio must exceed its limit before it is said to.
const SURE: f64 = 2.0;

/// How a program runs in a round.
pub trait Way: Copy {
    fn name(self) -> &'static str;
}

/// How often etcd's threads run for a Pod. Where that differs between ways, etcd does its work in other portions, and its CPU time is no
/// measure of the machine alone.
pub const ETCD_TIMESLICES: &str = "etcd timeslices/Pod";

/// What the daemon itself takes for the cost, by which it keeps its budget: part of the program's CPU time.
pub const OVERHEAD: &str = "% of CPU: by its own account";

/// Whether schedspan traces the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    No,
    Yes,
}

impl Traced {
    pub const ALL: [Self; 2] = [Self::No, Self::Yes];
}

impl Way for Traced {
    fn name(self) -> &'static str {
        match self {
            Self::No => "untraced",
            Self::Yes => "schedspan",
        }
    }
}

/// What a process has used of CPU time in all, and of memory now.
pub struct Usage {
    pub cpu_ms: f64,
    pub resident_mib: f64,
}

/// What processes have used when the measured part of a round begins or ends.
pub struct Reading {
    pub program: Usage,
    pub etcd_cpu_ms: f64,
    pub computed: Computed,
    /// Of schedspan, and its metrics. Only while it traces.
    pub daemon: Option<(Usage, Metrics)>,
}

/// The figures of a round.
#[derive(Default)]
pub struct Round {
    /// CPU time of the program.
    pub cpu_ms_per_pod: f64,
    /// CPU time of etcd. Its requests for a Pod do not depend on tracing, so it shows how busy the machine was with other work,
    /// which slows the program as well; as far as [`ETCD_TIMESLICES`] are equal.
    pub etcd_cpu_ms_per_pod: f64,
    /// CPU time of a computation that is always the same. It shows how fast the machine was, whatever else ran on it.
    pub computation_us: f64,
    pub pods_per_second: f64,
    pub resident_mib: f64,
    /// Only with schedspan.
    pub daemon: Option<Daemon>,
    /// Further figures, by the names that the report prints.
    pub others: Vec<(&'static str, f64)>,
}

/// The cost of the daemon.
pub struct Daemon {
    pub cpu_ms_per_pod: f64,
    pub resident_mib: f64,
    pub lost: f64,
}

impl Round {
    /// The figures of so many Pods between two readings.
    ///
    /// # Errors
    ///
    /// If schedspan has cut something, or the time between them was too short for a computation.
    pub fn between(before: &Reading, after: &Reading, pods: f64, pods_per_second: f64) -> Result<Self> {
        let (mut daemon, mut others) = (None, Vec::new());
        if let (Some((used_before, before)), Some((used, after))) = (&before.daemon, &after.daemon) {
            nothing_cut(after)?;
            let increase = |metric| after.sum(metric, &[]) - before.sum(metric, &[]);
            others.push(("hits/Pod", increase("schedspan_hits_total") / pods));
            others.push(("records/Pod", increase("schedspan_records_total") / pods));
            daemon = Some(Daemon {
                cpu_ms_per_pod: (used.cpu_ms - used_before.cpu_ms) / pods,
                resident_mib: used.resident_mib,
                lost: increase("schedspan_losses_total"),
            });
        }
        Ok(Self {
            cpu_ms_per_pod: (after.program.cpu_ms - before.program.cpu_ms) / pods,
            etcd_cpu_ms_per_pod: (after.etcd_cpu_ms - before.etcd_cpu_ms) / pods,
            computation_us: after.computed.mean_us_since(&before.computed)?,
            pods_per_second,
            resident_mib: after.program.resident_mib,
            daemon,
            others,
        })
    }

    /// CPU time of program and daemon.
    pub fn cpu(&self) -> f64 {
        self.cpu_ms_per_pod + self.daemon.as_ref().map_or(0.0, |daemon| daemon.cpu_ms_per_pod)
    }

    /// Memory of both.
    fn resident(&self) -> f64 {
        self.resident_mib + self.daemon.as_ref().map_or(0.0, |daemon| daemon.resident_mib)
    }
}

/// # Errors
///
/// If schedspan has cut something, so that its figures are the cost of less.
pub fn nothing_cut(metrics: &Metrics) -> Result<()> {
    let cuts = metrics.sum("schedspan_cuts_total", &[]);
    ensure!(cuts == 0.0, "the budget has cut something {cuts} times: this is the cost of less");
    Ok(())
}

/// Measures each way once in a turn, for this number of turns (`rounds`), with a line about each round on stderr. `measure` gets the way, the
/// number of the turn and a calibration that lasts as long as all turns. Turn 0 is a warm-up, whose rounds are thrown away. `end` is called at the end of each turn.
///
/// # Errors
///
/// Those of `measure` and `end`.
pub fn turns<W: Way>(
    rounds: u32,
    ways: &[W],
    mut measure: impl FnMut(W, u32, &Calibration) -> Result<Round>,
    mut end: impl FnMut() -> Result<()>,
) -> Result<Vec<(W, Vec<Round>)>> {
    let calibration = Calibration::start();
    let mut all: Vec<(W, Vec<Round>)> = ways.iter().map(|way| (*way, Vec::new())).collect();
    for turn in 0..=rounds {
        // Each way is first, in the middle and last equally often, so that a drift affects all.
        for place in 0..ways.len() {
            let (way, of_way) = &mut all[(turn as usize + place) % ways.len()];
            let round = measure(*way, turn, &calibration)?;
            let Round { cpu_ms_per_pod, pods_per_second, .. } = &round;
            let what = if turn == 0 { "warm-up, thrown away" } else { way.name() };
            eprintln!(
                "round    {turn} of {rounds}: {what:<20} {cpu_ms_per_pod:.3} ms of CPU a Pod, {pods_per_second:.1} Pods/s"
            );
            if turn > 0 {
                of_way.push(round);
            }
        }
        end()?;
    }
    Ok(all)
}

/// What each way costs.
#[derive(Deserialize, Serialize)]
pub struct Costs {
    /// The traced program.
    pub program: String,
    /// Rounds of each way.
    pub rounds: u32,
    /// Pods of a round.
    pub pods: u32,
    /// Untraced first.
    pub ways: Vec<Cost>,
    /// In all rounds.
    pub lost: f64,
}

/// The cost of a way.
#[derive(Deserialize, Serialize)]
pub struct Cost {
    pub way: String,
    pub program_cpu_ms_per_pod: Spread,
    pub daemon_cpu_ms_per_pod: Option<Spread>,
    /// Of program and daemon.
    pub cpu_ms_per_pod: Spread,
    pub program_cpu_ratio: Ratios,
    /// Of both.
    pub cpu_ratio: Ratios,
    etcd_cpu_ms_per_pod: Spread,
    computation_us: Spread,
    pub pods_per_second: Spread,
    pub program_resident_mib: Spread,
    pub daemon_resident_mib: Option<Spread>,
    pub resident_mib: Spread,
    pub others: BTreeMap<String, Spread>,
}

/// CPU time relative to the untraced round of the same turn.
#[derive(Deserialize, Serialize)]
pub struct Ratios {
    pub raw: Mean,
    /// Each round's CPU time is divided by that of [`Round::computation_us`].
    pub calibrated: Mean,
    /// Each round's CPU time is divided by etcd's.
    pub in_etcds_time: Mean,
}

/// A figure that ways may have: its name behind the program's, or alone.
type Figure = (&'static str, bool, fn(&Cost) -> Option<&Spread>);

impl Costs {
    /// Requires at least one round of each way, untraced first.
    pub fn of<W: Way>(program: &str, pods: u32, rounds: &[(W, Vec<Round>)]) -> Self {
        let untraced = &rounds[0].1;
        let daemons = rounds.iter().flat_map(|(_, rounds)| rounds).filter_map(|round| round.daemon.as_ref());
        Self {
            program: program.to_owned(),
            rounds: untraced.len() as u32,
            pods,
            ways: rounds.iter().map(|(way, rounds)| Cost::of(way.name(), rounds, untraced)).collect(),
            lost: daemons.map(|daemon| daemon.lost).sum(),
        }
    }

    /// Prints a table of all figures, and the ratios.
    pub fn print(&self) {
        let Self { program, ways, lost, .. } = self;
        println!("{:<36} {:<18} {:>10} {:>10} {:>10}", "", "", "MEDIAN", "MIN", "MAX");
        let rows: [Figure; 9] = [
            ("CPU ms/Pod", true, |cost| Some(&cost.program_cpu_ms_per_pod)),
            ("schedspan CPU ms/Pod", false, |cost| cost.daemon_cpu_ms_per_pod.as_ref()),
            ("both CPU ms/Pod", false, |cost| Some(&cost.cpu_ms_per_pod)),
            ("etcd CPU ms/Pod", false, |cost| Some(&cost.etcd_cpu_ms_per_pod)),
            ("computation CPU us", false, |cost| Some(&cost.computation_us)),
            ("Pods/s", false, |cost| Some(&cost.pods_per_second)),
            ("resident MiB", true, |cost| Some(&cost.program_resident_mib)),
            ("schedspan resident MiB", false, |cost| cost.daemon_resident_mib.as_ref()),
            ("both resident MiB", false, |cost| Some(&cost.resident_mib)),
        ];
        for (name, is_of_program, spread) in rows {
            let name = if is_of_program { format!("{program} {name}") } else { name.to_owned() };
            for cost in ways {
                if let Some(spread) = spread(cost) {
                    spread.print(&name, &cost.way);
                }
            }
        }
        let others: BTreeSet<_> = ways.iter().flat_map(|cost| cost.others.keys()).collect();
        for name in others {
            for cost in ways {
                if let Some(spread) = cost.others.get(name) {
                    spread.print(name, &cost.way);
                }
            }
        }
        for cost in ways.iter().skip(1) {
            let Cost { way, program_cpu_ratio: alone, cpu_ratio: both, .. } = cost;
            let means = [
                ("", &alone.raw, &both.raw),
                (", calibrated", &alone.calibrated, &both.calibrated),
                (", in etcd's time", &alone.in_etcds_time, &both.in_etcds_time),
            ];
            for (measure, alone, both) in means {
                println!("{way} / untraced, geometric mean{measure}: {alone} of {program}, {both} of both");
            }
        }
        println!("lost: {lost}");
    }

    /// # Errors
    ///
    /// If something was lost: the figures are the cost of less.
    pub fn nothing_lost(&self) -> Result<()> {
        ensure!(self.lost == 0.0, "{} things were lost", self.lost);
        Ok(())
    }

    /// Checks that a traced program takes at most so much of the untraced one's CPU time, as far as the rounds can tell.
    ///
    /// # Errors
    ///
    /// If the ratio exceeds the limit by more than two standard errors.
    pub fn within(&self, limit: f64) -> Result<()> {
        for cost in self.ways.iter().skip(1) {
            let ratio = cost.program_cpu_ratio.more_certain();
            if ratio.surely_exceeds(limit) {
                bail!(
                    "{} takes {ratio} of its untraced CPU time, and at most {limit} is right",
                    self.program
                );
            }
        }
        Ok(())
    }
}

impl Cost {
    fn of(way: &str, rounds: &[Round], untraced: &[Round]) -> Self {
        let of = |value: fn(&Round) -> f64| Spread::of(rounds.iter().map(value));
        let of_daemon = |value: fn(&Daemon) -> f64| {
            let readings: Vec<_> =
                rounds.iter().filter_map(|round| round.daemon.as_ref().map(value)).collect();
            (!readings.is_empty()).then(|| Spread::of(readings))
        };
        let mut others = BTreeMap::<_, Vec<f64>>::new();
        for (name, value) in rounds.iter().flat_map(|round| &round.others) {
            others.entry((*name).to_owned()).or_default().push(*value);
        }
        Self {
            way: way.to_owned(),
            program_cpu_ms_per_pod: of(|round| round.cpu_ms_per_pod),
            daemon_cpu_ms_per_pod: of_daemon(|daemon| daemon.cpu_ms_per_pod),
            cpu_ms_per_pod: of(Round::cpu),
            program_cpu_ratio: Ratios::of(rounds, untraced, |round| round.cpu_ms_per_pod),
            cpu_ratio: Ratios::of(rounds, untraced, Round::cpu),
            etcd_cpu_ms_per_pod: of(|round| round.etcd_cpu_ms_per_pod),
            computation_us: of(|round| round.computation_us),
            pods_per_second: of(|round| round.pods_per_second),
            program_resident_mib: of(|round| round.resident_mib),
            daemon_resident_mib: of_daemon(|daemon| daemon.resident_mib),
            resident_mib: of(Round::resident),
            others: others.into_iter().map(|(name, readings)| (name, Spread::of(readings))).collect(),
        }
    }
}

impl Ratios {
    /// Those of `cpu`. Requires at least one round of each.
    pub fn of(rounds: &[Round], others: &[Round], cpu: impl Fn(&Round) -> f64) -> Self {
        let ratio = |value: &dyn Fn(&Round) -> f64| {
            let pairs = rounds.iter().zip(others);
            Mean::of(&pairs.map(|(round, other)| value(round) / value(other)).collect::<Vec<_>>())
        };
        Self {
            raw: ratio(&cpu),
            calibrated: ratio(&|round| cpu(round) / round.computation_us),
            in_etcds_time: ratio(&|round| cpu(round) / round.etcd_cpu_ms_per_pod),
        }
    }

    /// That with the smaller error of the two whose measure is the same beside schedspan and without: etcd takes less CPU time
    /// for the same requests when it gets more of them at once.
    fn more_certain(&self) -> &Mean {
        let error = |mean: &Mean| mean.standard_error.unwrap_or(f64::INFINITY);
        let Self { raw, calibrated, .. } = self;
        if error(raw) < error(calibrated) { raw } else { calibrated }
    }
}

/// The distribution of a figure.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Requires at least one reading.
    pub fn of(readings: impl IntoIterator<Item = f64>) -> Self {
        let mut readings: Vec<_> = readings.into_iter().collect();
        readings.sort_by(f64::total_cmp);
        let last = readings.len() - 1;
        let median = f64::midpoint(readings[last / 2], readings[last.div_ceil(2)]);
        Self { median, min: readings[0], max: readings[last] }
    }

    /// As documents state it.
    pub fn text(&self) -> String {
        format!("{:.2} ({:.2} to {:.2})", self.median, self.min, self.max)
    }

    pub fn median_text(&self) -> String {
        format!("{:.2}", self.median)
    }

    /// The tenths below and above the median.
    pub fn tenths_around(&self) -> String {
        let tenth = (self.median * 10.0).floor() / 10.0;
        format!("{tenth:.1} to {:.1}", tenth + 0.1)
    }

    pub fn print(&self, name: &str, way: &str) {
        let Self { median, min, max } = self;
        println!("{name:<36} {way:<18} {median:>10.3} {min:>10.3} {max:>10.3}");
    }
}

/// The mean of a ratio.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Mean {
    /// The geometric mean, in which a ratio and its inverse cancel out, so that noise does not look like a cost.
    pub mean: f64,
    /// The relative standard error of the mean; `None` for a single reading.
    pub standard_error: Option<f64>,
}

impl Mean {
    /// Requires at least one ratio.
    pub fn of(ratios: &[f64]) -> Self {
        let count = ratios.len() as f64;
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count;
        let squares: f64 = ratios.iter().map(|ratio| (ratio.ln() - mean).powi(2)).sum();
        let standard_error = (ratios.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
        Self { mean: mean.exp(), standard_error }
    }

    /// As documents state it.
    pub fn text(&self) -> String {
        let error = self.standard_error.map(|error| format!(" ± {error:.3}"));
        format!("{:.3}{}", self.mean, error.unwrap_or_default())
    }

    /// Whether it is above the limit even if it is too high by [`SURE`] standard errors. A single reading is not sure of anything.
    fn surely_exceeds(&self, limit: f64) -> bool {
        self.standard_error.is_some_and(|error| self.mean * (1.0 - SURE * error) > limit)
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean, standard_error } = self;
        write!(f, "{mean:.3}")?;
        standard_error.map_or(Ok(()), |error| write!(f, " (standard error {error:.3})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cpu_ms_per_pod: f64, computation_us: f64, daemon: Option<f64>) -> Round {
        Round {
            cpu_ms_per_pod,
            etcd_cpu_ms_per_pod: 2.0,
            computation_us,
            resident_mib: 50.0,
            daemon: daemon.map(|cpu_ms_per_pod| Daemon { cpu_ms_per_pod, resident_mib: 30.0, lost: 1.0 }),
            ..Round::default()
        }
    }

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
    fn figures_are_as_documents_state_them() {
        assert_eq!(Spread::of([4.806, 3.66, 5.494]).text(), "4.81 (3.66 to 5.49)");
        assert_eq!(Spread::of([0.366]).median_text(), "0.37");
        assert_eq!(Spread::of([0.366]).tenths_around(), "0.3 to 0.4");
        assert_eq!(Mean { mean: 1.0514, standard_error: Some(0.0139) }.text(), "1.051 ± 0.014");
        assert_eq!(Mean { mean: 1.0514, standard_error: None }.text(), "1.051");
    }

    #[test]
    fn the_cost_of_a_way_is_that_of_program_and_daemon() {
        let rounds =
            [(Traced::No, vec![round(2.0, 1.0, None)]), (Traced::Yes, vec![round(2.2, 1.1, Some(0.3))])];
        let costs = Costs::of("kubelet", 150, &rounds);
        let cost = &costs.ways[1];
        assert_eq!((cost.cpu_ms_per_pod.median, cost.resident_mib.median), (2.5, 80.0));
        let is = |mean: &Mean, expected: f64| (mean.mean - expected).abs() < 1e-9;
        assert!(is(&cost.cpu_ratio.raw, 1.25) && is(&cost.program_cpu_ratio.raw, 1.1));
        // The machine was slower by the same factor, and etcd took the same time.
        assert!(
            is(&cost.program_cpu_ratio.calibrated, 1.0) && is(&cost.program_cpu_ratio.in_etcds_time, 1.1)
        );
        assert!(costs.ways[0].daemon_cpu_ms_per_pod.is_none());
        assert!(costs.nothing_lost().is_err());
    }

    #[test]
    fn each_way_begins_a_turn_as_often_as_the_others_and_the_first_turn_is_thrown_away() {
        let (order, ends) = (std::cell::RefCell::new(Vec::new()), std::cell::Cell::new(0));
        let measure = |way: Traced, turn, _: &Calibration| {
            order.borrow_mut().push((turn, way.name()));
            Ok(round(f64::from(turn), 1.0, None))
        };
        let end = || {
            ends.set(ends.get() + 1);
            Ok(())
        };
        let rounds = turns(2, &Traced::ALL, measure, end).unwrap();
        let (off, on) = ("untraced", "schedspan");
        assert_eq!(order.into_inner(), [(0, off), (0, on), (1, on), (1, off), (2, off), (2, on)]);
        assert_eq!(ends.get(), 3);
        for (_, of_way) in rounds {
            assert_eq!(of_way.iter().map(|round| round.cpu_ms_per_pod).collect::<Vec<_>>(), [1.0, 2.0]);
        }
    }

    #[test]
    fn a_round_is_what_was_used_between_its_readings() {
        let reading = |cpu_ms: f64, hits: u32| Reading {
            program: Usage { cpu_ms: 10.0 * cpu_ms, resident_mib: 70.0 },
            etcd_cpu_ms: 2.0 * cpu_ms,
            computed: Computed { computations: cpu_ms as u64, nanoseconds: 70_000 * cpu_ms as u64 },
            daemon: Some((
                Usage { cpu_ms, resident_mib: 20.0 },
                Metrics::parse(&format!("schedspan_hits_total {hits}\nschedspan_losses_total 3\n")).unwrap(),
            )),
        };
        let round = Round::between(&reading(100.0, 500), &reading(120.0, 900), 10.0, 50.0).unwrap();
        assert_eq!((round.cpu_ms_per_pod, round.etcd_cpu_ms_per_pod, round.cpu()), (20.0, 4.0, 22.0));
        assert_eq!(round.computation_us, 70.0);
        let daemon = round.daemon.unwrap();
        // What was lost before is not of this round.
        assert_eq!((daemon.cpu_ms_per_pod, daemon.resident_mib, daemon.lost), (2.0, 20.0, 0.0));
        assert_eq!(round.others[0], ("hits/Pod", 40.0));
    }

    #[test]
    fn figures_of_a_daemon_that_cut_something_are_refused() {
        assert!(nothing_cut(&Metrics::parse("schedspan_cuts_total{what=\"samples\"} 1\n").unwrap()).is_err());
        assert!(nothing_cut(&Metrics::parse("schedspan_cuts_total{what=\"samples\"} 0\n").unwrap()).is_ok());
    }

    #[test]
    fn a_limit_is_exceeded_only_by_more_than_noise() {
        let ratio = |mean, error| Mean { mean, standard_error: error };
        assert!(ratio(1.05, Some(0.01)).surely_exceeds(1.02));
        assert!(!ratio(1.05, Some(0.02)).surely_exceeds(1.02));
        assert!(!ratio(1.01, Some(0.001)).surely_exceeds(1.02) && !ratio(2.0, None).surely_exceeds(1.02));
    }

    #[test]
    fn the_ratio_with_the_smaller_error_counts() {
        let rounds = |cpus: [f64; 2], us: [f64; 2]| -> Vec<_> {
            cpus.into_iter().zip(us).map(|(cpu, us)| round(cpu, us, None)).collect()
        };
        // The second turn was twice as slow for everything, and then for the program alone.
        for (us, exceeds) in [([1.0, 2.0], true), ([1.0, 1.0], false)] {
            let all = [(Traced::No, rounds([1.0, 1.0], [1.0, 1.0])), (Traced::Yes, rounds([1.1, 2.2], us))];
            assert_eq!(Costs::of("kubelet", 1, &all).within(1.02).is_err(), exceeds);
        }
    }
}
