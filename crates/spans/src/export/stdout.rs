//! Outputs on standard output: one text per trace, or packets of a file.

use std::{io, sync::Arc, thread};

use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message as _;
use tokio::{sync::oneshot, task::JoinHandle};
use tracing::{info, warn};

use super::{Causes, Chrome, Item, Perfetto, Queue, Style, chart, encode, waterfall};
use crate::{
    Loss, Trace, TraceKind,
    screen::{self, printable_in_colour, printable_json},
};

pub(super) const CAUSES: Causes = Causes { full: Loss::OutputQueueFull, failed: Loss::OutputFailed };

/// What traces become.
pub(super) trait Format: Send + 'static {
    /// Whether it is read by lines, so that the trace after one that was written in part can be read.
    const LINES: bool;

    /// A trace.
    fn trace(&mut self, item: &Item) -> Vec<u8>;

    /// What follows the last trace.
    fn end(&mut self) -> Vec<u8>;
}

impl<F: FnMut(&Item) -> String + Send + 'static> Format for F {
    const LINES: bool = true;

    fn trace(&mut self, item: &Item) -> Vec<u8> {
        self(item).into_bytes()
    }

    fn end(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

impl Format for Perfetto {
    const LINES: bool = false;

    fn trace(&mut self, item: &Item) -> Vec<u8> {
        Self::trace(self, &item.trace, &item.resource)
    }

    fn end(&mut self) -> Vec<u8> {
        Self::end(self)
    }
}

impl Format for Chrome {
    const LINES: bool = false;

    fn trace(&mut self, item: &Item) -> Vec<u8> {
        Self::trace(self, &item.trace, &item.resource).into_bytes()
    }

    fn end(&mut self) -> Vec<u8> {
        Self::end(self).into_bytes()
    }
}

/// Writes until the queue is closed and empty, or the reader has closed standard output. What cannot be written, as to a full device, is lost, and
/// the next trace is tried.
///
/// It has its own thread, since a reader may stop reading. A blocking thread of tokio would keep the runtime from ending.
pub(super) fn spawn(queue: Queue, format: impl Format) -> JoinHandle<()> {
    let (done, end) = oneshot::channel();
    thread::spawn(move || {
        write(queue, format, Unbuffered(screen::stdout()));
        done.send(())
    });
    // An error means that the thread panicked, which is the end as well.
    tokio::spawn(async { end.await.unwrap_or_default() })
}

fn write<F: Format>(mut queue: Queue, mut format: F, mut out: impl io::Write) {
    // A part of a text was written: the next one begins a line.
    let (mut open, mut torn, mut said) = (true, false, false);
    while let Some(item) = queue.receiver.blocking_recv() {
        let bytes = format.trace(&item);
        let written = if open { write_bytes(&mut out, &bytes, &mut torn) } else { Err(closed()) };
        if let Err(error) = &written {
            if open && !said {
                warn!("cannot write to standard output: {error}; spans are lost");
            }
            said = true;
            if error.kind() == io::ErrorKind::BrokenPipe || (torn && !F::LINES) {
                open = false;
                // The rest of the queue is still received, to be counted.
                queue.receiver.close();
            }
        } else if said {
            info!("standard output can be written to again");
            said = false;
        }
        queue.settle(item.spans(), written.is_ok());
    }
    if open && let Err(error) = write_bytes(&mut out, &format.end(), &mut torn) {
        warn!("cannot write to standard output: {error}; what follows the last trace is missing");
    }
}

/// Standard output without its buffer, which would keep a part of what could not be written and count as written what is in it.
struct Unbuffered(io::Stdout);

impl io::Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn closed() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

/// Writes what a trace became, on a line of its own if only a part of the previous one was written.
fn write_bytes(out: &mut impl io::Write, bytes: &[u8], torn: &mut bool) -> io::Result<()> {
    if *torn {
        out.write_all(b"\n")?;
        *torn = false;
    }
    let mut left = bytes;
    while !left.is_empty() {
        match out.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                left = &left[count..];
                *torn = !left.is_empty();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

/// A waterfall and an empty line.
pub(super) fn terminal(item: &Item, plugins: bool) -> String {
    if is_shown_before(&item.trace) {
        return String::new();
    }
    // Computed for each trace: the width of a window changes.
    printable_in_colour(&waterfall(&item.trace, &Style { plugins, ..Style::of_stdout() })) + "\n"
}

/// A chart in Mermaid's language.
pub(super) fn mermaid(item: &Item) -> String {
    if is_shown_before(&item.trace) { String::new() } else { chart(&item.trace) }
}

/// Whether people have seen all of it in the picture of another trace: a creation, a deletion or an eviction is a request of its
/// reconcile. One of no reconcile holds the request itself.
fn is_shown_before(trace: &Trace) -> bool {
    let is_request =
        matches!(trace.kind, TraceKind::PodCreation | TraceKind::PodDeletion | TraceKind::PodEviction);
    is_request && trace.spans.len() == 1
}

/// A line as the Collector's file exporter writes it: of the bytes that OTLP would send.
pub(super) fn json(trace: &Trace, resource: &Arc<[u8]>) -> String {
    let data = TracesData::decode(&*encode(trace, resource, &mut 0));
    let data = data.expect("what is encoded can be decoded");
    // Strings, numbers and lists always have a JSON form.
    let text = serde_json::to_string(&data).expect("OTLP becomes JSON");
    printable_json(&text).into_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        export::{
            Sink, Text,
            terminal::tests::add_plugins,
            tests::{item, lost, sinks},
        },
        fixtures::scheduled,
    };

    /// A file of one trace.
    fn file(mut format: impl Format, item: &Item) -> Vec<u8> {
        let mut file = format.trace(item);
        assert!(!file.is_empty(), "what is complete is written at once");
        file.extend(format.end());
        file
    }

    #[test]
    fn a_file_has_what_its_format_makes_of_a_trace() {
        let item = item(scheduled());
        let (trace, resource) = (&item.trace, &item.resource);
        let mut perfetto = Perfetto::default();
        let expected = [perfetto.trace(trace, resource), perfetto.end()].concat();
        assert_eq!(file(Perfetto::default(), &item), expected);
        let mut chrome = Chrome::default();
        let expected = chrome.trace(trace, resource) + &chrome.end();
        assert_eq!(file(Chrome::default(), &item), expected.into_bytes());
        assert_eq!(file(json_of, &item), json_of(&item).into_bytes(), "lines have no end");
    }

    fn json_of(item: &Item) -> String {
        json(&item.trace, &item.resource)
    }

    #[test]
    fn a_line_of_json_is_what_the_collector_writes() {
        let line = json_of(&item(scheduled()));
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

    #[test]
    fn a_waterfall_has_an_empty_line_after_it_and_each_plugin_if_asked_for() {
        let mut trace = scheduled();
        add_plugins(&mut trace, "preFilter", &[("Fit", 0, 1, "Success"), ("Taint", 1, 1, "Success")]);
        let item = item(trace);
        let (folded, each) = (terminal(&item, false), terminal(&item, true));
        assert!(folded.contains("2 plugins") && !folded.contains("plugin: Fit"), "{folded}");
        assert!(each.contains("plugin: Fit") && each.contains("plugin: Taint"), "{each}");
        assert!(each.ends_with("\n\n") && each.starts_with("default/web-0  Success"), "{each}");
    }

    #[test]
    fn a_deletion_is_drawn_unless_it_is_a_request_of_a_reconcile() {
        for (spans, is_drawn) in [(1, false), (2, true)] {
            let mut trace = scheduled();
            trace.kind = TraceKind::PodDeletion;
            trace.spans.truncate(spans);
            let item = item(trace);
            for text in [terminal(&item, false), mermaid(&item)] {
                assert_eq!(!text.is_empty(), is_drawn, "{text}");
            }
        }
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

    /// A device that is full for a while: it takes `room` bytes, and after some errors everything.
    struct Full {
        room: usize,
        errors: usize,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = if self.errors == 0 { bytes.len() } else { bytes.len().min(self.room) };
            if taken == 0 {
                self.errors -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room = self.room.saturating_sub(taken);
            self.written.lock().unwrap().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is interrupted before each byte.
    struct Interrupted {
        next: bool,
        written: Vec<u8>,
    }

    impl io::Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.next = !self.next;
            if self.next {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.written.push(bytes[0]);
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_that_is_interrupted_is_tried_again() {
        let (mut out, mut torn) = (Interrupted { next: false, written: Vec::new() }, false);
        assert!(write_bytes(&mut out, b"whole\n", &mut torn).is_ok() && !torn);
        assert_eq!(out.written, b"whole\n");
    }

    #[tokio::test]
    async fn a_full_device_loses_what_does_not_fit_and_goes_on() {
        let line = json_of(&item(scheduled())).len();
        for room in [0, 1, line - 1, line, line + 7, 2 * line + 100] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let full = Full { room, errors: 2, written: Arc::clone(&written) };
            let (sinks, registry) = sinks(|metrics| {
                Sink::Text(Text::open(1000, CAUSES, metrics, |queue| {
                    tokio::task::spawn_blocking(move || write(queue, json_of, full))
                }))
            });
            for _ in 0..6 {
                sinks.send(scheduled());
            }
            assert!(!sinks.ended(), "a full device ended the output");
            sinks.shutdown(std::time::Duration::from_secs(60)).await;
            let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
            let whole = written.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
            let spans = scheduled().spans.len() as u64;
            assert_eq!(lost(&registry), [("output_failed", 2 * spans)], "{room}");
            assert_eq!(whole, 4, "{room}: {written}");
        }
    }

    #[tokio::test]
    async fn a_closed_pipe_ends_the_output_and_loses_what_was_meant_for_it() {
        let (sinks, registry) = sinks(|metrics| {
            Sink::Text(Text::open(1000, CAUSES, metrics, |queue| {
                tokio::task::spawn_blocking(move || write(queue, json_of, Closed))
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
