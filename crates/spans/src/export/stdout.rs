//! Outputs on standard output: one text per trace.

use std::{io, thread};

use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message as _;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{Causes, Item, Queue, Style, encode, waterfall};
use crate::Loss;

pub(super) const CAUSES: Causes = Causes { full: Loss::OutputQueueFull, failed: Loss::OutputFailed };

/// Writes until the queue is closed and empty, or standard output is closed.
///
/// It has its own thread, since a reader may stop reading. A blocking thread of tokio would keep the runtime from ending.
pub(super) fn spawn(queue: Queue, render: impl Fn(&Item) -> String + Send + 'static) -> JoinHandle<()> {
    let (done, end) = oneshot::channel();
    thread::spawn(move || {
        write(queue, render, io::stdout());
        done.send(())
    });
    // An error means that the thread panicked, which is the end as well.
    tokio::spawn(async { end.await.unwrap_or_default() })
}

fn write(mut queue: Queue, render: impl Fn(&Item) -> String, mut out: impl io::Write) {
    let mut open = true;
    while let Some(item) = queue.receiver.blocking_recv() {
        open = open && out.write_all(render(&item).as_bytes()).and_then(|()| out.flush()).is_ok();
        if !open {
            // The rest of the queue is still received, to be counted.
            queue.receiver.close();
        }
        queue.settle(item.spans(), open);
    }
}

/// A waterfall and an empty line.
pub(super) fn terminal(item: &Item, plugins: bool) -> String {
    // Computed for each trace: the width of a window changes.
    waterfall(&item.trace, &Style { plugins, ..Style::of_stdout() }) + "\n"
}

/// A line as the Collector's file exporter writes it: of the bytes that OTLP would send.
pub(super) fn json(item: &Item) -> String {
    let data = TracesData::decode(&*encode(&item.trace, &item.resource));
    let data = data.expect("what is encoded can be decoded");
    // Strings, numbers and lists always have a JSON form.
    serde_json::to_string(&data).expect("OTLP becomes JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        export::{
            Sink, Text,
            tests::{item, lost, sinks},
        },
        fixtures::scheduled,
    };

    #[test]
    fn a_line_of_json_is_what_the_collector_writes() {
        let line = json(&item(scheduled()));
        assert_eq!(line.find('\n'), Some(line.len() - 1));
        let value: Value = serde_json::from_str(&line).unwrap();
        let spans = &value["resourceSpans"][0]["scopeSpans"][0];
        assert_eq!(spans["scope"]["name"], "schedspan");
        let root = &spans["spans"][0];
        assert_eq!(root["traceId"], "abababababababababababababababab");
        assert_eq!(root["spanId"], "0000000000000001");
        assert_eq!(root["startTimeUnixNano"], "1795219200000000000");
        assert_eq!(
            root["attributes"][5],
            json!({"key": "k8s.scheduler.attempt", "value": {"intValue": "1"}})
        );
        assert_eq!(root["links"][0]["traceId"], "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd");
        assert_eq!(spans["spans"][1]["parentSpanId"], "0000000000000001");
    }

    struct Closed;

    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_closed_pipe_ends_the_output_and_loses_what_was_meant_for_it() {
        let (sinks, registry) = sinks(|metrics| {
            Sink::Text(Text::open(1000, CAUSES, metrics, |queue| {
                tokio::task::spawn_blocking(move || write(queue, json, Closed))
            }))
        });
        assert!(!sinks.ended());
        sinks.send(scheduled());
        while !sinks.ended() {
            tokio::task::yield_now().await;
        }
        sinks.send(scheduled());
        sinks.shutdown(std::time::Duration::from_secs(60)).await;
        assert_eq!(lost(&registry), [("output_failed", 2 * scheduled().spans.len() as u64)]);
    }
}
