//! A trace as a Gantt chart of Mermaid, which GitHub and others draw in issues: <https://mermaid.js.org/syntax/gantt.html>.

use std::collections::HashMap;

use crate::{
    Cycle, Span, SpanKind, Status, Trace, attributes,
    figures::duration,
    text::{Name, clean},
};

/// Rows of a chart. Mermaid refuses texts of more than 50,000 characters.
const MAX_ROWS: usize = 100;
/// Characters of a name.
const MAX_NAME: usize = 80;

/// A chart with the marks that make it one in Markdown. Mermaid counts in milliseconds; here each is a microsecond, which the axis says.
#[must_use]
pub fn chart(trace: &Trace) -> String {
    let root = trace.root();
    let value = |key| root.attribute(key).map(ToString::to_string);
    let subject = match (value(attributes::POD_NAMESPACE), value(attributes::POD_NAME)) {
        (Some(namespace), Some(name)) => format!(" {namespace}/{name}"),
        (Some(_), None) | (None, _) => String::new(),
    };
    let result = value(attributes::RESULT).map(|result| format!(" {result}")).unwrap_or_default();
    let title = format!("{}{subject}{result} in {}", root.name, duration(root.duration_ns()));
    let mut text =
        format!("```mermaid\ngantt\n    title {}\n    dateFormat x\n    axisFormat %Q us\n", name(&title));
    let rows = rows(trace);
    let begin = rows.iter().map(|span| span.start_unix_ns).min().unwrap_or_default();
    let (mut section, mut left_out) = (None, rows.len());
    for span in rows.into_iter().take(MAX_ROWS) {
        left_out -= 1;
        if let Some(next) = section_of(span, trace).filter(|next| section.as_ref() != Some(next)) {
            text += &format!("    section {}\n", name(&next.as_str()));
            section = Some(next);
        }
        let mark = if span.status == Status::Unset { "" } else { "crit, " };
        text += &format!(
            "    {} {} :{mark}{}, {}ms\n",
            name(&span.name.as_str()),
            duration(span.duration_ns()).trim(),
            span.start_unix_ns.saturating_sub(begin) / 1000,
            (span.duration_ns() / 1000).max(1),
        );
    }
    if left_out > 0 {
        text += &format!("    {left_out} further spans are left out :milestone, 0, 0ms\n");
    }
    text + "```\n\n"
}

/// All spans but the root and stays in queues, each before those below it.
fn rows(trace: &Trace) -> Vec<&Span> {
    let mut children: HashMap<_, Vec<_>> = HashMap::new();
    for span in trace.spans.iter().rev().filter(|span| span.kind != SpanKind::QueueStay) {
        children.entry(span.parent_id).or_default().push(span);
    }
    let mut open = children.remove(&None).unwrap_or_default();
    let mut rows = Vec::new();
    while let Some(span) = open.pop() {
        open.extend(children.remove(&Some(span.span_id)).unwrap_or_default());
        rows.push(span);
    }
    // A trace that is nothing but its root shows that.
    if rows.len() > 1 {
        rows.remove(0);
    }
    rows
}

/// The heading above a span, if it begins a part.
fn section_of(span: &Span, trace: &Trace) -> Option<Name> {
    let part = match span.kind {
        SpanKind::Cycle(Cycle::Scheduling | Cycle::Binding) | SpanKind::Root(_) | SpanKind::Stage(_) => span,
        SpanKind::ApiCall | SpanKind::Victim if span.parent_id.is_none() => {
            return Some(Name::from("after the attempt"));
        }
        // The steps of one start are one part, and so are those of one creation.
        SpanKind::Node(_) | SpanKind::Api(_) => return None,
        SpanKind::Phase(_)
        | SpanKind::Plugin
        | SpanKind::Share
        | SpanKind::Extender
        | SpanKind::ApiCall
        | SpanKind::Victim
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::QueueStay
        | SpanKind::Request
        | SpanKind::Other => {
            return (span.parent_id == Some(trace.root().span_id)).then_some(Name::from("attempt"));
        }
    };
    Some(part.name.clone())
}

/// Text without the characters that mean something to Mermaid.
fn name(text: &str) -> String {
    let plain = clean(text).replace(['#', ';', ':', ',', '`', '%', '<', '>', '{', '}'], " ");
    let words: Vec<_> = plain.split_whitespace().collect();
    words.join(" ").chars().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scheduled, unschedulable};

    #[test]
    fn an_attempt_is_a_chart_in_microseconds() {
        let chart = chart(&scheduled());
        let expected = "\
```mermaid
gantt
    title SchedulePod default/web-0 Success in 5.11 ms
    dateFormat x
    axisFormat %Q us
    section schedulingCycle
    schedulingCycle 1.90 ms :0, 1900ms
    preFilter 143 us :55, 143ms
    filter 669 us :205, 669ms
    preScore 113 us :895, 113ms
    score 667 us :1015, 667ms
    reserve 25.0 us :1795, 25ms
    permit 3.00 us :1825, 3ms
    section bindingCycle
    bindingCycle 3.20 ms :1905, 3200ms
    preBindPreFlight 4.00 us :1910, 4ms
    preBind 8.00 us :1925, 8ms
    bind 3.00 ms :1945, 3000ms
    postBind 9.00 us :4955, 9ms
```

";
        assert_eq!(chart, expected);
    }

    #[test]
    fn a_failed_phase_is_critical() {
        let chart = chart(&unschedulable());
        assert!(chart.contains("postFilter 250 us :crit, 516, 250ms"), "{chart}");
        assert!(chart.contains("filter 400 us :106, 400ms"), "{chart}");
    }

    #[test]
    fn names_cannot_end_the_chart_or_begin_a_statement() {
        let mut trace = scheduled();
        trace.spans[2].name = "a: b, crit\n```\n%% c;\u{1b}[31m#35;".to_owned().into();
        let chart = chart(&trace);
        assert!(chart.contains("\n    a b crit c ?[31m 35 143 us :55, 143ms\n"), "{chart}");
        assert_eq!(chart.matches("```").count(), 2);
    }

    #[test]
    fn a_long_trace_says_how_much_it_leaves_out() {
        let mut trace = scheduled();
        let more = vec![trace.spans[2].clone(); MAX_ROWS];
        trace.spans.extend(more);
        let chart = chart(&trace);
        assert_eq!(
            chart.lines().filter(|line| line.contains("ms") && line.contains(" :")).count(),
            MAX_ROWS + 1
        );
        assert!(chart.contains("12 further spans are left out"), "{chart}");
    }

    #[test]
    fn calls_that_outlast_the_attempt_are_a_section() {
        let mut trace = scheduled();
        let call = |parent_id| {
            let bind = scheduled().spans[1].clone();
            Span {
                kind: SpanKind::ApiCall,
                name: "pod_status_patch".into(),
                span_id: [9; 8],
                parent_id,
                ..bind
            }
        };
        trace.spans.push(call(None));
        assert!(chart(&trace).contains("    section after the attempt\n    pod_status_patch "));
        *trace.spans.last_mut().expect("it was added") = call(Some(trace.root().span_id));
        let chart = chart(&trace);
        assert!(!chart.contains("after the attempt") && chart.contains("    section attempt\n"), "{chart}");
    }

    #[test]
    fn a_trace_of_one_span_is_not_empty() {
        let mut trace = scheduled();
        trace.spans.truncate(1);
        assert!(chart(&trace).contains("SchedulePod 5.11 ms :0, 5110ms"));
    }
}
