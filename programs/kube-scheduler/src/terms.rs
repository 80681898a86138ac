//! What terms of Pods cost: which plugins evaluate them, and how long attempts with and without each take to find a Node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spans::{
    Phase, Span, SpanKind, Trace,
    terms::{Term, Terms},
};

use crate::keys::{Keys, names};

/// Phases that look for Nodes on which the Pod fits.
const FILTER: [Phase; 2] = [Phase::PreFilter, Phase::Filter];
/// Phases that look for the best of them.
const SCORE: [Phase; 2] = [Phase::PreScore, Phase::Score];

/// A plugin, and the terms of the Pod that give it work: in [`SCORE`], and in all other phases. Of `Score`, only terms of preference do.
/// Terms of *other* Pods are not among them, although InterPodAffinity looks at those of all Pods that run:
/// <https://github.com/kubernetes/kubernetes/tree/v1.36.4/pkg/scheduler/framework/plugins>.
const EVALUATED: [(&str, Terms, Terms); 9] = [
    (
        "InterPodAffinity",
        Terms::of(&[Term::PreferredPodAffinity, Term::PreferredPodAntiAffinity]),
        Terms::of(&[Term::RequiredPodAffinity, Term::RequiredPodAntiAffinity]),
    ),
    ("PodTopologySpread", Terms::of(&[Term::SoftSpread]), Terms::of(&[Term::HardSpread])),
    (
        "NodeAffinity",
        Terms::of(&[Term::PreferredNodeAffinity]),
        Terms::of(&[Term::NodeSelector, Term::RequiredNodeAffinity]),
    ),
    ("NodePorts", Terms::of(&[]), Terms::of(&[Term::HostPorts])),
    ("VolumeBinding", Terms::of(&[Term::VolumeClaims]), Terms::of(&[Term::VolumeClaims])),
    ("VolumeZone", Terms::of(&[]), Terms::of(&[Term::VolumeClaims])),
    ("NodeVolumeLimits", Terms::of(&[]), Terms::of(&[Term::VolumeClaims])),
    ("VolumeRestrictions", Terms::of(&[]), Terms::of(&[Term::VolumeClaims, Term::InlineDisks])),
    ("DynamicResources", Terms::of(&[Term::ResourceClaims]), Terms::of(&[Term::ResourceClaims])),
];

/// Those of a Pod's terms, by their names, that a plugin evaluates in a phase.
pub(crate) fn evaluated<'a>(plugin: &str, phase: &str, of_pod: &'a [String]) -> Vec<&'a str> {
    let Some((_, score, others)) = EVALUATED.iter().find(|(known, ..)| *known == plugin) else {
        return Vec::new();
    };
    let terms = if is_of(SCORE, phase) { score } else { others };
    let is_evaluated = |name: &&str| terms.iter().any(|term| term.name() == *name);
    of_pod.iter().map(String::as_str).filter(is_evaluated).collect()
}

fn is_of(phases: [Phase; 2], name: &str) -> bool {
    phases.iter().any(|phase| phase.name() == name)
}

/// Attempts of Pods with a term, beside those of Pods without it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TermCost {
    /// Name of the term.
    pub term: String,
    /// Attempts of Pods that have it.
    pub with: Search,
    /// Attempts of all other Pods.
    pub without: Search,
    /// The plugin that took most of the time with it; empty if no plugin was seen.
    pub plugin: String,
    /// How long that plugin took, nanoseconds.
    pub plugin_ns: u64,
}

/// How long attempts took to find a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Search {
    /// Number of attempts.
    pub attempts: u64,
    /// Time of their `preFilter` and `filter`, nanoseconds.
    pub filter_ns: u64,
    /// Time of their `preScore` and `score`, nanoseconds.
    pub score_ns: u64,
}

impl Search {
    /// The time of all, nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.filter_ns.saturating_add(self.score_ns)
    }

    /// Mean of `filter_ns` and of `score_ns`, nanoseconds; `None` without attempts.
    #[must_use]
    pub fn means(&self) -> Option<[u64; 2]> {
        let Self { attempts, filter_ns, score_ns } = self;
        Some([filter_ns.checked_div(*attempts)?, score_ns.checked_div(*attempts)?])
    }

    fn add(&mut self, Self { attempts, filter_ns, score_ns }: &Self) {
        self.attempts = self.attempts.saturating_add(*attempts);
        self.filter_ns = self.filter_ns.saturating_add(*filter_ns);
        self.score_ns = self.score_ns.saturating_add(*score_ns);
    }

    /// What is left of it without a part of it.
    fn minus(&self, part: &Self) -> Self {
        Self {
            attempts: self.attempts.saturating_sub(part.attempts),
            filter_ns: self.filter_ns.saturating_sub(part.filter_ns),
            score_ns: self.score_ns.saturating_sub(part.score_ns),
        }
    }
}

impl TermCost {
    /// Sorts by the time that attempts took longer than as many without the term, longest first. Where all Pods have the term,
    /// that is not known, and counts as none.
    pub fn sort(costs: &mut [Self]) {
        let extra_ns = |Self { with, without, .. }: &Self| {
            let mean = without.total_ns() as f64 / without.attempts as f64;
            if mean.is_nan() { 0.0 } else { with.total_ns() as f64 - mean * with.attempts as f64 }
        };
        costs.sort_by(|one, other| extra_ns(other).total_cmp(&extra_ns(one)).then(one.term.cmp(&other.term)));
    }

    /// Adds what another daemon has seen. Of two plugins the one that took longer stays.
    pub(crate) fn merge(&mut self, Self { term: _, with, without, plugin, plugin_ns }: &Self) {
        self.with.add(with);
        self.without.add(without);
        if self.plugin == *plugin {
            self.plugin_ns = self.plugin_ns.saturating_add(*plugin_ns);
        } else if self.plugin_ns < *plugin_ns {
            (self.plugin, self.plugin_ns) = (plugin.clone(), *plugin_ns);
        }
    }
}

/// Sums over attempts, of all and by term. Bounded by the number of terms, and of keys.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    all: Search,
    by_term: BTreeMap<Term, (Search, BTreeMap<usize, u64>)>,
}

impl Sums {
    /// Adds an attempt, whose spans have these keys. That of a Pod that is not known is left out: it may have any terms.
    pub(crate) fn add(&mut self, trace: &Trace, keys: &[usize]) {
        if trace.selected.is_none() {
            return;
        }
        let time_in = |phases: [Phase; 2]| {
            let is_its = |span: &&Span| phases.iter().any(|phase| span.kind == SpanKind::Phase(*phase));
            trace.spans.iter().filter(is_its).map(Span::duration_ns).fold(0, u64::saturating_add)
        };
        let search = Search { attempts: 1, filter_ns: time_in(FILTER), score_ns: time_in(SCORE) };
        self.all.add(&search);
        for term in Terms::of_root(trace.root()).iter() {
            let (sum, plugins) = self.by_term.entry(term).or_default();
            sum.add(&search);
            for (span, key) in trace.spans.iter().zip(keys) {
                let point = names(span).1;
                if is_of(FILTER, point) || is_of(SCORE, point) {
                    add_to(plugins, *key, span.duration_ns());
                }
            }
        }
    }

    pub(crate) fn merge(&mut self, Self { all, by_term }: &Self) {
        self.all.add(all);
        for (term, (search, plugins)) in by_term {
            let (sum, known) = self.by_term.entry(*term).or_default();
            sum.add(search);
            plugins.iter().for_each(|(key, ns)| add_to(known, *key, *ns));
        }
    }

    /// A row for each term that a Pod had, the dearest first.
    pub(crate) fn costs(&self, keys: &Keys) -> Vec<TermCost> {
        let cost = |(term, (with, plugins)): (&Term, &(Search, BTreeMap<usize, u64>))| {
            let mut by_name = BTreeMap::new();
            for (number, key) in keys.iter().enumerate() {
                if let Some(ns) = plugins.get(&number) {
                    add_to(&mut by_name, &*key.name, *ns);
                }
            }
            let (plugin, plugin_ns) = by_name.into_iter().max_by_key(|(_, ns)| *ns).unwrap_or_default();
            let without = self.all.minus(with);
            TermCost {
                term: term.name().to_owned(),
                with: *with,
                without,
                plugin: plugin.to_owned(),
                plugin_ns,
            }
        };
        let mut costs: Vec<_> = self.by_term.iter().map(cost).collect();
        TermCost::sort(&mut costs);
        costs
    }
}

fn add_to<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, ns: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(ns);
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::subsequence};
    use spans::{AttributeValue, attributes, fixtures::scheduled, names::PLUGIN};

    use super::*;
    use crate::last_minute::{LastMinute, Window};

    /// An attempt of a Pod with these terms, whose phases took so many microseconds, and in each the plugins.
    fn attempt(terms: &[Term], phases: &[(Phase, u64)], plugins: &[(Phase, &str, u64)]) -> Trace {
        let mut trace = Trace { selected: Some(0), ..scheduled() };
        let plain = Span { attributes: spans::Attributes::new(), ..trace.spans[1].clone() };
        trace.spans.truncate(1);
        trace.spans[0].attributes.extend(Terms::of(terms).attribute());
        let lasting =
            |us: u64, kind| Span { kind, end_unix_ns: plain.start_unix_ns + us * 1000, ..plain.clone() };
        for (phase, us) in phases {
            trace.spans.push(Span { name: phase.name().into(), ..lasting(*us, SpanKind::Phase(*phase)) });
        }
        for (phase, plugin, us) in plugins {
            let mut span =
                Span { name: format!("{PLUGIN}{plugin}").into(), ..lasting(*us, SpanKind::Plugin) };
            span.attributes.push((attributes::EXTENSION_POINT, AttributeValue::String(phase.name().into())));
            trace.spans.push(span);
        }
        trace
    }

    /// The table of a window with these attempts.
    fn table(attempts: &[Trace]) -> Vec<TermCost> {
        let mut window = Window::default();
        attempts.iter().for_each(|trace| window.trace(1, "Success", trace));
        window.figures(1).terms
    }

    fn search(attempts: u64, filter_us: u64, score_us: u64) -> Search {
        Search { attempts, filter_ns: filter_us * 1000, score_ns: score_us * 1000 }
    }

    #[test]
    fn the_dearest_term_is_first_with_its_plugin_and_what_attempts_take_without_it() {
        let dear = attempt(
            &[Term::RequiredPodAntiAffinity, Term::HostPorts],
            &[(Phase::PreFilter, 900), (Phase::Filter, 100), (Phase::Score, 50), (Phase::Bind, 9_000)],
            &[
                (Phase::PreFilter, "InterPodAffinity", 800),
                (Phase::Filter, "InterPodAffinity", 60),
                (Phase::Filter, "NodePorts", 30),
                (Phase::Bind, "DefaultBinder", 9_000),
            ],
        );
        let ports = attempt(&[Term::HostPorts], &[(Phase::Filter, 1), (Phase::PreScore, 1)], &[]);
        let plain = attempt(&[], &[(Phase::Filter, 10), (Phase::Score, 10)], &[]);
        let unknown = Trace { selected: None, ..dear.clone() };
        let rows = table(&[dear.clone(), dear, ports, plain, unknown]);
        let row = |term: Term, with, without, plugin_us: u64| TermCost {
            term: term.name().to_owned(),
            with,
            without,
            plugin: "InterPodAffinity".to_owned(),
            plugin_ns: plugin_us * 1000,
        };
        assert_eq!(
            rows,
            [
                row(Term::RequiredPodAntiAffinity, search(2, 2_000, 100), search(2, 11, 11), 1_720),
                row(Term::HostPorts, search(3, 2_001, 101), search(1, 10, 10), 1_720),
            ]
        );
        assert_eq!(rows[0].with.means(), Some([1_000_000, 50_000]));
        assert_eq!(Search::default().means(), None);
    }

    #[test]
    fn a_term_of_all_pods_cannot_be_compared_and_is_no_dearer_than_others() {
        let filter = |us| [(Phase::Filter, us)];
        let all = attempt(&[Term::NodeSelector, Term::VolumeClaims], &filter(100), &[]);
        let rows = table(&[all, attempt(&[Term::NodeSelector], &filter(90), &[])]);
        let terms: Vec<_> = rows.iter().map(|row| (row.term.as_str(), row.without.attempts)).collect();
        assert_eq!(terms, [("volume claims", 1), ("node selector", 0)]);
        assert_eq!(rows[0].plugin, "");
    }

    #[test]
    fn tables_of_several_daemons_are_one() {
        let dear = |plugin, us| {
            let phases = [(Phase::Filter, us)];
            attempt(&[Term::SoftSpread], &phases, &[(Phase::Filter, plugin, us)])
        };
        let of = |attempts: &[Trace]| LastMinute { terms: table(attempts), ..LastMinute::default() };
        let (plain, cheap) =
            (attempt(&[], &[], &[]), attempt(&[Term::HostPorts], &[(Phase::Filter, 1)], &[]));
        let tables = [of(&[dear("One", 10), plain.clone()]), of(&[dear("Two", 30), cheap, plain]), of(&[])];
        let merged = LastMinute::merged(tables.to_vec()).unwrap().terms;
        let row = &merged[0];
        assert_eq!((row.with, row.without), (search(2, 40, 0), search(3, 1, 0)));
        assert_eq!(
            (row.term.as_str(), row.plugin.as_str(), row.plugin_ns),
            ("soft spread constraints", "Two", 30_000)
        );
        assert_eq!((merged.len(), merged[1].term.as_str()), (2, "host ports"));
        // It is what a client reads.
        let json = serde_json::to_string(&merged).unwrap();
        assert_eq!(serde_json::from_str::<Vec<TermCost>>(&json).unwrap(), merged);
    }

    #[test]
    fn a_plugin_evaluates_its_own_terms_in_the_phases_that_ask_for_them() {
        let all: Vec<String> = Term::ALL.map(|term| term.name().to_owned()).to_vec();
        let of = |plugin, phase: Phase| evaluated(plugin, phase.name(), &all).join(", ");
        assert_eq!(
            of("InterPodAffinity", Phase::PreFilter),
            "required Pod affinity, required Pod anti-affinity"
        );
        assert_eq!(
            of("InterPodAffinity", Phase::PreScore),
            "preferred Pod affinity, preferred Pod anti-affinity"
        );
        assert_eq!(of("NodeAffinity", Phase::Filter), "node selector, required Node affinity");
        assert_eq!(of("NodeAffinity", Phase::Score), "preferred Node affinity");
        assert_eq!(of("PodTopologySpread", Phase::Score), "soft spread constraints");
        assert_eq!(of("VolumeBinding", Phase::PreBind), "volume claims");
        assert_eq!(of("DynamicResources", Phase::Reserve), "resource claims");
        assert_eq!(of("VolumeRestrictions", Phase::Filter), "volume claims, inline disks");
        assert_eq!(of("Mine", Phase::Filter), "");
        for term in Term::ALL {
            let any =
                |(_, score, others): &(&str, Terms, Terms)| (*score | *others).iter().any(|of| of == term);
            assert!(EVALUATED.iter().any(any), "{}", term.name());
        }
    }

    proptest! {
        /// Time is neither lost nor invented, however many attempts there are, and the table is bounded.
        #[test]
        fn each_row_adds_up_to_all_attempts(
            attempts in vec((subsequence(Term::ALL.to_vec(), 0..=Term::ALL.len()), 0..1_000_u64, 0..1_000_u64), 0..20),
        ) {
            let traces: Vec<_> = attempts
                .iter()
                .map(|(terms, filter, score)| {
                    attempt(terms, &[(Phase::Filter, *filter), (Phase::Score, *score)], &[(Phase::Score, "A", *score)])
                })
                .collect();
            let (filter, score) = attempts.iter().fold((0, 0), |sums, (_, filter, score)| (sums.0 + filter, sums.1 + score));
            let all = search(attempts.len() as u64, filter, score);
            let rows = table(&traces);
            prop_assert!(rows.len() <= Term::ALL.len());
            for TermCost { term, with, without, plugin_ns, .. } in rows {
                let mut both = with;
                both.add(&without);
                prop_assert_eq!(both, all);
                let has = |terms: &[Term]| terms.iter().any(|of| of.name() == term);
                prop_assert_eq!(with.attempts, attempts.iter().filter(|(terms, ..)| has(terms)).count() as u64);
                prop_assert_eq!(plugin_ns, with.score_ns);
            }
        }
    }
}
