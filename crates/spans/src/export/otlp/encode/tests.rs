//! What is encoded is what `opentelemetry-proto` decodes, for traces of any content.

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value},
    trace::v1::{Span as OtlpSpan, Status as OtlpStatus, TracesData, span},
};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use prost::Message as _;
use tracecontext::RemoteContext;

use super::*;
use crate::{Cycle, Evidence, NodeStep, Phase, Stage, text::Name};

/// The message of a span, written without regard for what it costs.
fn expected(trace: &Trace, span: &Span) -> OtlpSpan {
    let remote = trace.parent.as_ref().filter(|_| span.parent_id.is_none());
    let is_consumer = matches!(
        span.kind,
        SpanKind::Root(TraceKind::Attempt | TraceKind::GroupAttempt | TraceKind::Reconcile)
    ) && span.parent_id.is_none();
    OtlpSpan {
        trace_id: trace.trace_id.into(),
        span_id: span.span_id.into(),
        trace_state: trace.parent.as_ref().map_or_else(String::new, |parent| parent.trace_state.clone()),
        parent_span_id: span.parent_id.or(remote.map(|remote| remote.span_id)).map_or(vec![], Vec::from),
        flags: if remote.is_some() { 0x301 } else { 0x101 },
        name: span.name.to_string(),
        kind: match span.kind {
            _ if is_consumer => span::SpanKind::Consumer,
            SpanKind::Node(
                NodeStep::RunPodSandbox
                | NodeStep::PullImage
                | NodeStep::CreateContainer
                | NodeStep::StartContainer,
            )
            | SpanKind::Api(ApiStep::Webhook | ApiStep::Storage)
            | SpanKind::Request => span::SpanKind::Client,
            _ => span::SpanKind::Internal,
        }
        .into(),
        start_time_unix_nano: span.start_unix_ns,
        end_time_unix_nano: span.end_unix_ns,
        attributes: pairs(&span.attributes),
        events: span
            .events
            .iter()
            .map(|event| span::Event {
                time_unix_nano: event.unix_ns,
                name: event.name.to_owned(),
                attributes: pairs(&event.attributes),
                ..span::Event::default()
            })
            .collect(),
        links: span
            .links
            .iter()
            .map(|link| span::Link {
                trace_id: link.context.trace_id.into(),
                span_id: link.context.span_id.into(),
                trace_state: link.context.trace_state.clone(),
                attributes: pairs(&relation(&link.relation)),
                flags: 0x300 | u32::from(link.context.flags),
                ..span::Link::default()
            })
            .collect(),
        status: Some(match &span.status {
            Status::Unset => OtlpStatus { code: 0, message: String::new() },
            Status::Error(message) => OtlpStatus { code: 2, message: message.clone() },
        }),
        ..OtlpSpan::default()
    }
}

fn relation(relation: &Relation) -> Vec<(&'static str, AttributeValue)> {
    let by = |what: &str, evidence: &str| {
        vec![("k8s.scheduler.link", what.into()), ("schedspan.link.evidence", evidence.into())]
    };
    let named = |evidence| match evidence {
        Evidence::Uid => "uid",
        Evidence::Name => "name",
    };
    match relation {
        Relation::PreviousAttempt => vec![("k8s.scheduler.link", "previous attempt".into())],
        Relation::Attempt => vec![("k8s.scheduler.link", "attempt".into())],
        Relation::Configuration => vec![("k8s.scheduler.link", "configuration".into())],
        Relation::Request(evidence) => by("request", named(*evidence)),
        Relation::Pod(evidence) => by("pod", named(*evidence)),
        Relation::Creator(evidence) => by("creator", named(*evidence)),
        Relation::Writer(evidence) => by("writer", named(*evidence)),
        Relation::Cause { annotation, owner } => [("schedspan.link.annotation", annotation.as_str().into())]
            .into_iter()
            .chain(owner.as_deref().map(|owner| ("schedspan.link.owner", owner.into())))
            .collect(),
    }
}

fn pairs(attributes: &[(&'static str, AttributeValue)]) -> Vec<KeyValue> {
    let pair = |(key, value): &(&'static str, AttributeValue)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(any_value(value)) }),
        ..KeyValue::default()
    };
    attributes.iter().map(pair).collect()
}

fn any_value(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::String(text) => Value::StringValue(text.to_string()),
        AttributeValue::Int(number) => Value::IntValue(*number),
        AttributeValue::Double(number) => Value::DoubleValue(*number),
        AttributeValue::Bool(is) => Value::BoolValue(*is),
        AttributeValue::Strings(list) => {
            let text = |text: &String| AnyValue { value: Some(Value::StringValue(text.clone())) };
            Value::ArrayValue(ArrayValue { values: list.iter().map(text).collect() })
        }
    }
}

fn kinds() -> impl Strategy<Value = SpanKind> {
    let all = TraceKind::ALL
        .into_iter()
        .map(SpanKind::Root)
        .chain(Cycle::ALL.into_iter().map(SpanKind::Cycle))
        .chain(Phase::ALL.into_iter().map(SpanKind::Phase))
        .chain(Stage::ALL.into_iter().map(SpanKind::Stage))
        .chain(NodeStep::ALL.into_iter().map(SpanKind::Node))
        .chain(ApiStep::ALL.into_iter().map(SpanKind::Api))
        .chain([
            SpanKind::Plugin,
            SpanKind::Share,
            SpanKind::Extender,
            SpanKind::ApiCall,
            SpanKind::Victim,
            SpanKind::Placement,
            SpanKind::Trial,
            SpanKind::QueueStay,
            SpanKind::Request,
            SpanKind::Other,
        ]);
    prop::sample::select(all.collect::<Vec<_>>())
}

/// Texts on both sides of the lengths at which the length itself takes another byte.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => ".{0,12}",
        1 => (0_usize..300).prop_map(|length| "é".repeat(length)),
        1 => (16_300_usize..16_400).prop_map(|length| "x".repeat(length)),
    ]
}

fn values() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        texts().prop_map(|text| AttributeValue::String(text.into())),
        any::<i64>().prop_map(AttributeValue::Int),
        // Messages are compared, and NaN differs from itself.
        any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(AttributeValue::Double),
        any::<bool>().prop_map(AttributeValue::Bool),
        prop::collection::vec(texts(), 0..4).prop_map(AttributeValue::Strings),
    ]
}

fn attributes() -> impl Strategy<Value = Vec<(&'static str, AttributeValue)>> {
    let keys = prop::sample::select(vec![attributes::POD_NAME, attributes::RESULT, attributes::INITIAL, ""]);
    prop::collection::vec((keys, values()), 0..5)
}

fn contexts() -> impl Strategy<Value = RemoteContext> {
    let states = prop::sample::select(vec!["", "rojo=1", "rojo=1,congo=t61rcWkgMzE"]);
    (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<u8>(), states).prop_map(
        |(trace_id, span_id, flags, trace_state)| RemoteContext {
            trace_id,
            span_id,
            flags,
            trace_state: trace_state.into(),
        },
    )
}

fn links() -> impl Strategy<Value = Link> {
    let relations = prop_oneof![
        Just(Relation::PreviousAttempt),
        Just(Relation::Attempt),
        Just(Relation::Configuration),
        Just(Relation::Request(Evidence::Uid)),
        Just(Relation::Pod(Evidence::Name)),
        Just(Relation::Creator(Evidence::Uid)),
        Just(Relation::Creator(Evidence::Name)),
        Just(Relation::Writer(Evidence::Uid)),
        (texts(), prop::option::of(texts()))
            .prop_map(|(annotation, owner)| Relation::Cause { annotation, owner }),
    ];
    (contexts(), relations).prop_map(|(context, relation)| Link { context, relation })
}

fn events() -> impl Strategy<Value = Event> {
    (any::<u64>(), attributes()).prop_map(|(unix_ns, attributes)| Event {
        name: "plugin rejected",
        unix_ns,
        attributes,
    })
}

fn spans_of_any_kind() -> impl Strategy<Value = Span> {
    let statuses = prop_oneof![Just(Status::Unset), texts().prop_map(Status::Error)];
    let identity = (any::<[u8; 8]>(), prop::option::of(any::<[u8; 8]>()), any::<u64>(), any::<u64>());
    let lists = (attributes(), prop::collection::vec(events(), 0..3), prop::collection::vec(links(), 0..3));
    let names = (prop::sample::select(vec!["", "plugin: "]), texts());
    (kinds(), names, identity, lists, statuses).prop_map(
        |(kind, (first, name), (span_id, parent_id, start_unix_ns, end_unix_ns), lists, status)| {
            let (attributes, events, links) = lists;
            let name = Name::new(first, name);
            Span {
                kind,
                span_id,
                parent_id,
                name,
                start_unix_ns,
                end_unix_ns,
                attributes: attributes.into(),
                events,
                links,
                status,
            }
        },
    )
}

fn traces() -> impl Strategy<Value = Trace> {
    let process = (0_u32..3).prop_map(Source::Process);
    let sources = prop_oneof![process, (0_u32..3).prop_map(Source::OtherProgram), Just(Source::Schedspan)];
    let spans = prop::collection::vec(spans_of_any_kind(), 1..5);
    (sources, any::<[u8; 16]>(), prop::option::of(contexts()), spans).prop_map(
        |(source, trace_id, parent, spans)| {
            let kind = TraceKind::Attempt;
            Trace { kind, source, trace_id, parent, selected: None, spans, names: None, beside: Vec::new() }
        },
    )
}

/// A resource that names its source.
fn resource_of(source: Source) -> Arc<[u8]> {
    resource([("source", &AttributeValue::from(&*format!("{source:?}")))].into_iter())
}

fn encoded(trace: &Trace) -> Encoded {
    Encoded::new(trace, resource_of(trace.source), &mut 0)
}

fn decoded(traces: &mut [Encoded]) -> TracesData {
    TracesData::decode(request(traces)).expect("OTLP")
}

proptest! {
    #[test]
    fn any_traces_are_decoded_as_what_they_are(traces in prop::collection::vec(traces(), 1..6)) {
        let message = decoded(&mut traces.iter().map(encoded).collect::<Vec<_>>());
        let mut sources: Vec<_> = traces.iter().map(|trace| trace.source).collect();
        sources.sort();
        sources.dedup();
        prop_assert_eq!(message.resource_spans.len(), sources.len());
        for (resource_spans, source) in message.resource_spans.iter().zip(sources) {
            let name = AttributeValue::from(&*format!("{source:?}"));
            let resource = resource_spans.resource.as_ref().unwrap();
            prop_assert_eq!(&resource.attributes, &pairs(&[("source", name)]));
            let [scope_spans] = &*resource_spans.scope_spans else { panic!("not one scope") };
            let scope = scope_spans.scope.as_ref().unwrap();
            prop_assert_eq!((&*scope.name, &*scope.version), ("schedspan", env!("CARGO_PKG_VERSION")));
            let of_source = traces.iter().filter(|trace| trace.source == source);
            let expected: Vec<_> =
                of_source.flat_map(|trace| trace.spans.iter().map(|span| expected(trace, span))).collect();
            prop_assert_eq!(&scope_spans.spans, &expected);
        }
    }

    #[test]
    fn what_is_split_again_and_again_loses_no_span(traces in prop::collection::vec(traces(), 1..6)) {
        let (mut parts, mut ids) = (vec![traces.iter().map(encoded).collect::<Vec<_>>()], Vec::new());
        while let Some(mut part) = parts.pop() {
            let message = decoded(&mut part);
            match split(part) {
                Some((first, rest)) => parts.extend([rest, first]),
                None => ids.push(message.resource_spans[0].scope_spans[0].spans[0].span_id.clone()),
            }
        }
        let mut in_order: Vec<_> = traces.iter().collect();
        in_order.sort_by_key(|trace| trace.source);
        let expected: Vec<_> = in_order.iter().flat_map(|trace| &trace.spans).map(|span| span.span_id.to_vec()).collect();
        prop_assert_eq!(ids, expected);
    }
}

#[test]
fn a_trace_state_is_written_without_its_optional_spaces() {
    assert_eq!(vendors("rojo=1,congo=2"), "rojo=1,congo=2");
    assert_eq!(vendors("rojo=1 , \tcongo=2,,"), "rojo=1,congo=2");
}
