//! Server-sent events, as they arrive.
//!
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>

use anyhow::{Result, ensure};
use futures::{Stream, StreamExt as _, stream};

use crate::Body;

/// Largest event: several times a trace with the work of all plugins.
const MAX_BYTES: usize = 16 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its type; empty if the server names none.
    pub name: String,
    /// Its data, lines joined by newlines.
    pub data: String,
}

/// The events of an answer. Ends with it, or after an error.
pub fn events(body: Body) -> impl Stream<Item = Result<Event>> + Send {
    let state = (body, Parser::default(), false);
    stream::unfold(state, |(mut body, mut parser, over)| async move {
        if over {
            return None;
        }
        loop {
            match parser.next() {
                Ok(Some(event)) => return Some((Ok(event), (body, parser, false))),
                Ok(None) => {}
                Err(error) => return Some((Err(error), (body, parser, true))),
            }
            match body.next().await {
                Some(Ok(bytes)) => parser.bytes.extend_from_slice(&bytes),
                Some(Err(error)) => return Some((Err(error), (body, parser, true))),
                None => return None,
            }
        }
    })
}

#[derive(Default)]
struct Parser {
    bytes: Vec<u8>,
    /// Bytes that are known to have no end of a line.
    seen: usize,
    event: Event,
}

impl Parser {
    /// The next complete event.
    fn next(&mut self) -> Result<Option<Event>> {
        while let Some(end) = self.bytes[self.seen..].iter().position(|byte| *byte == b'\n') {
            let rest = self.bytes.split_off(self.seen + end + 1);
            let line = std::mem::replace(&mut self.bytes, rest);
            self.seen = 0;
            let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" if self.event.data.is_empty() => value.clone_into(&mut self.event.data),
                "data" => {
                    self.event.data.push('\n');
                    self.event.data += value;
                }
                "event" => value.clone_into(&mut self.event.name),
                // Comments, and fields of later servers.
                _ => {}
            }
            ensure!(self.event.data.len() <= MAX_BYTES, "an event is longer than {MAX_BYTES} bytes");
        }
        self.seen = self.bytes.len();
        ensure!(self.seen <= MAX_BYTES, "a line is longer than {MAX_BYTES} bytes");
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn read(parts: Vec<Vec<u8>>) -> Vec<Result<Event>> {
        let body = stream::iter(parts.into_iter().map(|part| Ok(Bytes::from(part)))).boxed();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(events(body).collect())
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    const TEXT: &str = ": open\n\ndata: {\"a\":1}\n\nevent: lost\r\ndata: {\"lost\":3}\r\n\r\n: quiet\n\ndata:x\ndata: y\n\ndata: cut";

    proptest! {
        #[test]
        fn events_are_the_same_wherever_the_bytes_are_cut(cuts in proptest::collection::vec(0..TEXT.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|cut| TEXT.as_bytes()[cut[0]..cut[1]].to_vec()).collect();
            let events: Vec<_> = read(parts).into_iter().map(Result::unwrap).collect();
            let expected = [event("", "{\"a\":1}"), event("lost", "{\"lost\":3}"), event("", "x\ny")];
            prop_assert_eq!(events, expected);
        }
    }

    #[test]
    fn a_line_without_an_end_is_an_error() {
        let events = read(vec![vec![b'x'; MAX_BYTES / 2]; 3]);
        assert!(events.len() == 1 && events[0].is_err());
    }
}
