//! The trace context of a command.

use std::{
    fs::File,
    io::{self, Read as _},
};

use http::HeaderValue;
use spans::text::hex;

/// Members of baggage, and bytes of the header that they are in.
///
/// <https://www.w3.org/TR/baggage/#limits>
const MAX_BAGGAGE: usize = 8192;

/// A sampled W3C trace context, and baggage.
#[derive(Clone, Debug)]
pub struct Context {
    /// Trace id.
    pub id: [u8; 16],
    /// Trace id in hex.
    pub trace_id: String,
    /// `traceparent`.
    pub parent: HeaderValue,
    /// `baggage`.
    pub baggage: Option<HeaderValue>,
}

impl Context {
    /// A new trace.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers, or a member of the baggage is not `KEY=VALUE`.
    pub fn new(baggage: &[String]) -> io::Result<Self> {
        let id: [u8; 16] = random_bytes()?;
        let trace_id = hex(&id);
        let parent = format!("00-{trace_id}-{}-01", random::<8>()?);
        let parent = HeaderValue::try_from(parent).map_err(io::Error::other)?;
        let baggage = if baggage.is_empty() { None } else { Some(header(baggage)?) };
        Ok(Self { id, trace_id, parent, baggage })
    }
}

fn header(members: &[String]) -> io::Result<HeaderValue> {
    let allowed = |c: u8| c.is_ascii_graphic() && !b"\",;\\".contains(&c);
    let is_member = |member: &String| {
        member
            .split_once('=')
            .is_some_and(|(key, value)| !key.is_empty() && key.bytes().chain(value.bytes()).all(allowed))
    };
    if let Some(wrong) = members.iter().find(|member| !is_member(member)) {
        return Err(io::Error::other(format!("`{wrong}` is not baggage; give KEY=VALUE, percent-encoded")));
    }
    let text = members.join(",");
    if text.len() > MAX_BAGGAGE {
        return Err(io::Error::other(format!("baggage may have {MAX_BAGGAGE} bytes at most")));
    }
    HeaderValue::try_from(text).map_err(io::Error::other)
}

/// Random bytes in hex, never all zero.
pub(crate) fn random<const BYTES: usize>() -> io::Result<String> {
    Ok(hex(&random_bytes::<BYTES>()?))
}

fn random_bytes<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut buffer = [0; BYTES];
    while buffer.iter().all(|byte| *byte == 0) {
        File::open("/dev/urandom")?.read_exact(&mut buffer)?;
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_sampled_and_new_each_time() {
        let baggage = ["team=shop".to_owned(), "run=a%20b".to_owned()];
        let (one, other) = (Context::new(&baggage).unwrap(), Context::new(&[]).unwrap());
        let parent = one.parent.to_str().unwrap();
        assert!(parent.len() == 55 && parent.ends_with("-01") && parent.contains(&one.trace_id), "{parent}");
        assert_eq!(one.baggage.unwrap(), "team=shop,run=a%20b");
        assert!(other.baggage.is_none() && other.trace_id != one.trace_id);
    }

    #[test]
    fn baggage_that_is_none_is_refused() {
        for wrong in ["", "team", "=shop", "a=b,c=d", "a=b;c", "a=\r\nx: y", "a b=c", "ä=b"] {
            assert!(header(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        assert!(header(&["a=b".repeat(5000)]).is_err());
    }
}
