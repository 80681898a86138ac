//! Rules on attempts of the exporters' tests.

use std::collections::BTreeMap;

use super::*;
use telemetry::{Label as _, Registry};
use tracecontext::RemoteContext;

use crate::{
    Dropped, Link, Relation, SpanKind, Status, TraceKind,
    fixtures::{scheduled, unschedulable},
};

fn sampler(rules: &[&str]) -> Sampler {
    Sampler::of(rules.iter().map(|rule| rule.parse().unwrap())).unwrap()
}

/// The rules that keep a trace.
fn kept_by(sampler: &mut Sampler, trace: &Trace) -> Vec<String> {
    let mut trace = trace.clone();
    let kept = sampler.keep(&mut trace, &Metrics::new(&Registry::default()));
    match trace.root().attribute(attributes::KEPT_BY) {
        Some(AttributeValue::Strings(rules)) => {
            assert!(kept);
            rules.clone()
        }
        other => {
            assert!(!kept && other.is_none());
            Vec::new()
        }
    }
}

fn keeps(rule: &str, trace: &Trace) -> bool {
    !kept_by(&mut sampler(&[rule]), trace).is_empty()
}

fn lasting(microseconds: u64) -> Trace {
    let mut trace = scheduled();
    trace.spans[0].end_unix_ns = trace.spans[0].start_unix_ns + microseconds * 1_000;
    trace
}

#[test]
fn the_ratio_is_that_of_the_sdk_for_go() {
    let mut decisions = BTreeMap::new();
    for line in include_str!("../../../../tests/sampler/vectors.tsv").lines() {
        let [fraction, trace_id, sampled] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let trace_id = u128::from_str_radix(trace_id, 16).unwrap().to_be_bytes();
        let trace = Trace { trace_id, ..scheduled() };
        let kept = keeps(&format!("traceidratio={fraction}"), &trace);
        assert_eq!(kept.to_string(), sampled, "{line}");
        *decisions.entry(kept).or_insert(0) += 1;
    }
    assert!(decisions[&true] > 500 && decisions[&false] > 500, "{decisions:?}");
}

#[test]
fn each_condition_keeps_what_it_describes() {
    let with = |key, value| {
        let mut trace = scheduled();
        trace.spans[0].attributes.push((key, value));
        trace
    };
    let preempting = with(attributes::PREEMPTION_NODE, AttributeValue::String("node-1".into()));
    let mut second = scheduled();
    let number = second.spans[0].attributes.iter_mut().find(|(key, _)| *key == attributes::ATTEMPT);
    number.unwrap().1 = AttributeValue::Int(2);
    let link = |relation, flags| {
        let mut trace = unschedulable();
        let context = RemoteContext { trace_id: [1; 16], span_id: [1; 8], flags, trace_state: String::new() };
        trace.spans[0].links.push(Link { context, relation });
        trace
    };
    let cause = || Relation::Cause { annotation: "traceparent".into(), owner: None };
    for (rule, trace, expected) in [
        ("always_on", scheduled(), true),
        ("always_off", scheduled(), false),
        ("failed", scheduled(), false),
        ("failed", unschedulable(), true),
        ("slower-than=5109us", scheduled(), true),
        ("slower-than=5110us", scheduled(), false),
        ("preempting", scheduled(), false),
        ("preempting", preempting, true),
        ("first-attempt", scheduled(), true),
        ("first-attempt", second, false),
        ("namespace=default", scheduled(), true),
        ("namespace=kube-system", scheduled(), false),
        ("link-sampled", link(cause(), 1), true),
        ("link-sampled", link(cause(), 0), false),
        ("link-sampled", link(Relation::PreviousAttempt, 1), false),
        ("failed,namespace=default", unschedulable(), true),
        ("failed,namespace=default", scheduled(), false),
        ("failed,namespace=kube-system", unschedulable(), false),
    ] {
        assert_eq!(keeps(rule, &trace), expected, "{rule}");
    }
}

#[test]
fn a_reconcile_has_failed_if_it_says_so_or_asks_to_be_called_again() {
    let reconcile = |retried, status| {
        let mut trace = scheduled();
        trace.kind = TraceKind::Reconcile;
        trace.spans.truncate(1);
        let root = &mut trace.spans[0];
        (root.kind, root.status) = (SpanKind::Root(TraceKind::Reconcile), status);
        root.attributes = vec![(attributes::WORKQUEUE_RETRIED, AttributeValue::Bool(retried))].into();
        trace
    };
    let error = Status::Error("conflict".to_owned());
    for (trace, expected) in [
        (reconcile(false, Status::Unset), false),
        (reconcile(true, Status::Unset), true),
        (reconcile(false, error), true),
    ] {
        assert_eq!(keeps("failed", &trace), expected);
    }
}

#[test]
fn a_parent_decides_where_there_is_one() {
    let below = |flags| {
        let parent = RemoteContext { trace_id: [1; 16], span_id: [1; 8], flags, trace_state: String::new() };
        Trace { parent: Some(parent), ..unschedulable() }
    };
    for (rule, alone, sampled, unsampled) in [
        ("parentbased_always_on", true, true, false),
        ("parentbased_always_off", false, true, false),
        ("parentbased_traceidratio=1", true, true, false),
        ("parentbased_traceidratio=0", false, true, false),
        ("link-sampled", false, true, false),
        ("always_on", true, true, true),
    ] {
        let kept = [unschedulable(), below(1), below(0)].map(|trace| keeps(rule, &trace));
        assert_eq!(kept, [alone, sampled, unsampled], "{rule}");
    }
}

#[test]
fn any_rule_keeps_and_the_root_names_the_rules() {
    let mut sampler = sampler(&["failed", "first-attempt", "namespace=x", "slower-than=1us"]);
    assert_eq!(kept_by(&mut sampler, &unschedulable()), ["failed", "first-attempt", "slower-than=1us"]);
    let mut trace = scheduled();
    assert!(Sampler::default().keep(&mut trace, &Metrics::new(&Registry::default())));
    assert_eq!(trace, scheduled(), "without rules nothing is decided, and nothing is said");
}

#[test]
fn the_pods_of_a_group_are_kept_with_the_one_that_a_rule_matches() {
    let mut group = scheduled();
    let mut member = unschedulable().spans.remove(0);
    member.parent_id = Some(group.root().span_id);
    group.spans.push(member);
    assert!(keeps("failed", &group));
    // But not where one is the first and another one fails.
    group.spans.last_mut().unwrap().attributes.clear();
    assert!(!keeps("failed,namespace=default", &scheduled()) && keeps("failed", &group));
    assert!(!keeps("failed,namespace=default", &group));
}

#[test]
fn each_selector_of_pods_has_one_bit() {
    let mut sampler = sampler(&["label=app", "label=app=web,failed", "priority-class=high", "label=app"]);
    let label = |value: Option<&str>| Selector::Label("app".to_owned(), value.map(str::to_owned));
    let high = Selector::PriorityClass("high".to_owned());
    assert_eq!(sampler.selectors(), [label(None), label(Some("web")), high]);
    let kept = kept_by(&mut sampler, &Trace { selected: Some(0b101), ..unschedulable() });
    assert_eq!(kept, ["label=app", "priority-class=high", "label=app"]);
    let kept = kept_by(&mut sampler, &Trace { selected: Some(0b010), ..unschedulable() });
    assert_eq!(kept, ["label=app=web,failed"]);
}

#[test]
fn a_percentile_is_of_the_thousand_attempts_before() {
    let mut sampler = sampler(&["slower-than=p90"]);
    let mut slow = |microseconds| !kept_by(&mut sampler, &lasting(microseconds)).is_empty();
    assert!((0..100).all(|number| !slow(number)), "there are too few to judge by");
    // Of 0 to 99 us the 90th is 89 us.
    assert!(!slow(89));
    // With another 89 us there are 101, of which the 91st is 89 us as well.
    assert!(slow(90));
    // Very slow ones, for so long that the others are forgotten.
    let judged = (0..1_000).filter(|_| slow(1_000_000)).count();
    assert!((11..120).contains(&judged), "{judged} of them are slower than 90 % of those before");
    assert!(!slow(1_000_000) && slow(1_000_001));
}

#[test]
fn at_most_so_many_are_kept_of_those_that_end_in_a_second() {
    let mut sampler = sampler(&["failed,at-most=3"]);
    let mut kept = BTreeMap::new();
    // Not in order, and with others in between.
    for (index, second) in [0, 0, 1, 0, 0, 1, 0, 2, 1, 1, 1, 0, 2].into_iter().enumerate() {
        let mut trace = if index % 5 == 4 { scheduled() } else { unschedulable() };
        trace.spans[0].end_unix_ns += second * 1_000_000_000;
        *kept.entry(second).or_insert(0) += usize::from(!kept_by(&mut sampler, &trace).is_empty());
    }
    assert_eq!(kept, BTreeMap::from([(0, 3), (1, 3), (2, 2)]));
}

#[test]
fn dropped_traces_are_counted_by_the_nearest_rule() {
    let parent = RemoteContext { trace_id: [1; 16], span_id: [1; 8], flags: 0, trace_state: String::new() };
    for (rules, trace, reason) in [
        (&["failed"][..], scheduled(), Dropped::NoRule),
        (&["failed,traceidratio=0"], scheduled(), Dropped::NoRule),
        (&["always_off"], scheduled(), Dropped::NoRule),
        (&["label=app", "failed"], scheduled(), Dropped::UnknownPod),
        (&["label=app"], Trace { selected: Some(0), ..scheduled() }, Dropped::NoRule),
        (&["failed,traceidratio=0", "label=app"], unschedulable(), Dropped::Ratio),
        (&["parentbased_always_on"], Trace { parent: Some(parent), ..scheduled() }, Dropped::Parent),
    ] {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        assert!(!sampler(rules).keep(&mut trace.clone(), &metrics), "{rules:?}");
        let line = format!("schedspan_traces_dropped_total{{reason=\"{}\"}} 1\n", reason.label());
        assert!(registry.encode().contains(&line), "{rules:?}: {line}");
    }
    let registry = Registry::default();
    let (metrics, mut sampler) = (Metrics::new(&registry), sampler(&["at-most=1"]));
    assert!(sampler.keep(&mut scheduled(), &metrics) && !sampler.keep(&mut scheduled(), &metrics));
    assert!(registry.encode().contains("schedspan_traces_dropped_total{reason=\"rate\"} 1\n"));
    assert!(registry.encode().contains("schedspan_traces_kept_total{sampler=\"at-most=1\"} 1\n"));
}

#[test]
fn an_invalid_rule_is_refused_with_what_is_valid() {
    for (text, part) in [
        ("", "give one of always_on, always_off"),
        ("fast", "`fast` is not a condition; give one of"),
        ("failed,", "`` is not a condition"),
        ("failed=yes", "takes no value"),
        ("namespace", "give `namespace=VALUE`"),
        ("namespace=", "give `namespace=VALUE`"),
        ("traceidratio=2", "`2` is not a number from 0 to 1"),
        ("traceidratio=NaN", "`NaN` is not a number from 0 to 1"),
        ("slower-than=5", "give a number with the unit"),
        ("slower-than=p0", "`p0` is not a percentile"),
        ("slower-than=p100", "`p100` is not a percentile"),
        ("at-most=0", "not a whole number above 0"),
        ("at-most=99999999999", "not a whole number above 0"),
        ("parentbased_failed", "give one of always_on, always_off, traceidratio"),
        ("parentbased_parentbased_always_on", "give one of"),
    ] {
        let error = text.parse::<Rule>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let most = ["failed"; MAX_RULES];
    assert!(Sampler::of(most.iter().map(|rule| rule.parse().unwrap())).is_ok());
    let many = vec!["failed"; MAX_RULES + 1];
    let error = Sampler::of(many.iter().map(|rule| rule.parse().unwrap())).unwrap_err().to_string();
    assert!(error.starts_with("33 rules are too many; give 32"), "{error}");
    let labels = |number: usize| {
        let labels: Vec<_> = (0..number).map(|label| format!("label=l{label}")).collect();
        Sampler::of(labels.chunks(8).map(|labels| labels.join(",").parse().unwrap()))
    };
    assert!(labels(MAX_SELECTORS).is_ok() && labels(MAX_SELECTORS + 1).is_err());
}

#[test]
fn opentelemetrys_variables_name_a_sampler() {
    let rule = |sampler: &str, argument: &str| {
        let variable = |name: &str| match name {
            "OTEL_TRACES_SAMPLER" => Some(sampler.to_owned()).filter(|text| !text.is_empty()),
            _ => Some(argument.to_owned()).filter(|text| !text.is_empty()),
        };
        config::environment(variable).map(|rule| rule.map_or_default(|rule| rule.text().to_owned()))
    };
    for (sampler, argument, expected) in [
        ("", "0.5", ""),
        ("always_on", "", "always_on"),
        ("always_off", "", "always_off"),
        ("traceidratio", "0.25", "traceidratio=0.25"),
        ("traceidratio", "", "traceidratio=1.0"),
        ("parentbased_always_on", "", "parentbased_always_on"),
        ("parentbased_always_off", "", "parentbased_always_off"),
        ("parentbased_traceidratio", "1e-3", "parentbased_traceidratio=1e-3"),
    ] {
        assert_eq!(rule(sampler, argument).unwrap(), expected, "{sampler} {argument}");
    }
    for (sampler, argument, part) in [
        ("traceidratio", "many", "OTEL_TRACES_SAMPLER_ARG is `many`; set it to a number from 0 to 1"),
        ("jaeger_remote", "", "OTEL_TRACES_SAMPLER is `jaeger_remote`; set it to always_on"),
        ("failed", "", "OTEL_TRACES_SAMPLER is `failed`"),
    ] {
        let error = rule(sampler, argument).unwrap_err().to_string();
        assert!(error.starts_with(part), "{error}");
    }
}

#[test]
fn tracing_configuration_is_read_from_files_of_the_api_server_and_of_the_scheduler() {
    let api_server = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
    let scheduler = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                     leaderElection: {leaderElect: true}\n";
    for (text, rule, endpoint) in [
        (format!("{api_server}samplingRatePerMillion: 10000\n"), "parentbased_traceidratio=0.01", None),
        (
            format!("{api_server}endpoint: c:4317\nsamplingRatePerMillion: 1\n"),
            "parentbased_traceidratio=0.000001",
            Some("c:4317"),
        ),
        (api_server.to_owned(), "parentbased_always_off", None),
        (format!("{api_server}samplingRatePerMillion: 1000000\n"), "parentbased_traceidratio=1", None),
        (
            format!("{scheduler}tracing:\n  endpoint: \"otel:4317\"\n  samplingRatePerMillion: 250000\n"),
            "parentbased_traceidratio=0.25",
            Some("otel:4317"),
        ),
        (format!("{scheduler}tracing: {{samplingRatePerMillion: 0}}\n"), "parentbased_always_off", None),
    ] {
        let (found, of) = config::configuration(&text).unwrap();
        assert_eq!((found.text(), of.as_deref()), (rule, endpoint), "{text}");
    }
    for (text, part) in [
        (format!("{api_server}samplingRatePerMillion: 1000001\n"), "must be from 0 to 1000000"),
        (format!("{api_server}samplingRatePerMillion: -1\n"), "must be from 0 to 1000000"),
        (scheduler.to_owned(), "it has no `tracing:`"),
        ("apiVersion: v1\nkind: Pod\n".to_owned(), "it is a Pod of v1; give a TracingConfiguration"),
        (
            "apiVersion: v1\nkind: TracingConfiguration\n".to_owned(),
            "it is a TracingConfiguration of v1; give a",
        ),
        ("{".to_owned(), "give a TracingConfiguration"),
        (String::new(), "give a TracingConfiguration"),
        ("a: &a [*a]".to_owned(), "give a TracingConfiguration"),
    ] {
        let error = config::configuration(&text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let error = config::file("/nowhere".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read `/nowhere`"), "{error}");
}
