//! Files of spans: OTLP as JSON, one message per line, or as protobuf.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message as _;

use super::{
    Error,
    span::{self, Span},
};

/// Most bytes of a message: batches of a Collector are much smaller.
const MAX_MESSAGE: usize = 64 << 20;

/// Reads the spans of a file, or those of one instrumentation scope.
///
/// JSON has one `TracesData` per line, as the Collector's file exporter and `schedspan run --output json` write it. Protobuf is
/// framed as by the same exporter, each message after its length in four bytes, or it is one bare message.
///
/// # Errors
///
/// When the file cannot be read or is malformed, with the line or the byte; when it has more than a million spans.
pub fn file(path: &Path, scope: Option<&str>) -> Result<Vec<Span>, Error> {
    let name = path.display().to_string();
    let input = File::open(path).map_err(|reason| Error::Unreadable { name: name.clone(), reason })?;
    read(BufReader::new(input), &name, scope)
}

/// Reads the content of a file; `name` is for errors.
///
/// # Errors
///
/// Those of [`file()`].
pub fn read(mut input: impl BufRead, name: &str, scope: Option<&str>) -> Result<Vec<Span>, Error> {
    let mut spans = Vec::new();
    let unreadable = |reason| Error::Unreadable { name: name.to_owned(), reason };
    match input.fill_buf().map_err(unreadable)?.first() {
        None => {}
        // Field 1 of a message, or the highest byte of a length.
        Some(0x0a) => {
            let mut message = Vec::new();
            input.take(MAX_MESSAGE as u64 + 1).read_to_end(&mut message).map_err(unreadable)?;
            take_message(&message, name, 0, scope, &mut spans)?;
        }
        Some(0x00..=0x08) => frames(input, name, scope, &mut spans)?,
        Some(_) => lines(input, name, scope, &mut spans)?,
    }
    Ok(spans)
}

fn lines(
    mut input: impl BufRead,
    name: &str,
    scope: Option<&str>,
    spans: &mut Vec<Span>,
) -> Result<(), Error> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let wrong = |reason: String| Error::Line { name: name.to_owned(), number, reason };
        let limit = MAX_MESSAGE as u64 + 1;
        let read = (&mut input).take(limit).read_until(b'\n', &mut line);
        if read.map_err(|reason| Error::Unreadable { name: name.to_owned(), reason })? == 0 {
            break;
        }
        if line.len() > MAX_MESSAGE {
            return Err(wrong(format!("it is longer than {MAX_MESSAGE} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        // Fields that JSON of protobuf omits if they are empty, and that the types require.
        let mut value: serde_json::Value =
            serde_json::from_slice(&line).map_err(|error| wrong(error.to_string()))?;
        complete(&mut value);
        let message: TracesData = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        span::take(message, scope, spans)?;
    }
    Ok(())
}

/// An empty list is written as `"arrayValue":{}`.
pub(crate) fn complete(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                if ["arrayValue", "kvlistValue"].contains(&key.as_str())
                    && let Some(list) = value.as_object_mut()
                {
                    list.entry("values").or_insert_with(|| serde_json::Value::Array(Vec::new()));
                }
                complete(value);
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(complete),
        _ => {}
    }
}

fn frames(mut input: impl Read, name: &str, scope: Option<&str>, spans: &mut Vec<Span>) -> Result<(), Error> {
    let mut offset = 0;
    loop {
        let wrong = |reason: String| Error::Message { name: name.to_owned(), offset, reason };
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(reason) => return Err(Error::Unreadable { name: name.to_owned(), reason }),
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(wrong(format!("its length of {length} bytes is above {MAX_MESSAGE}")));
        }
        let mut message = vec![0; length];
        input.read_exact(&mut message).map_err(|error| wrong(format!("it breaks off: {error}")))?;
        take_message(&message, name, offset, scope, spans)?;
        offset += 4 + length as u64;
    }
}

fn take_message(
    bytes: &[u8],
    name: &str,
    offset: u64,
    scope: Option<&str>,
    spans: &mut Vec<Span>,
) -> Result<(), Error> {
    let wrong = |reason: String| Error::Message { name: name.to_owned(), offset, reason };
    if bytes.len() > MAX_MESSAGE {
        return Err(wrong(format!("it is longer than {MAX_MESSAGE} bytes")));
    }
    let message = TracesData::decode(bytes).map_err(|error| wrong(error.to_string()))?;
    span::take(message, scope, spans)
}
