//! When certificates are valid: the one thing that is read in them.
//!
//! <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>

use rustls::pki_types::CertificateDer;
use time::{Date, Month, PrimitiveDateTime, Time};

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate is valid, seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// A certificate cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("it is no certificate, or a malformed one")]
pub(crate) struct Malformed;

impl Validity {
    /// The time in which all certificates of a chain are valid.
    ///
    /// # Errors
    ///
    /// When there is none, or one of them is malformed.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Result<Self, Malformed> {
        let mut all = None;
        for certificate in chain {
            let Self { start, end } = one(certificate).ok_or(Malformed)?;
            let so_far = all.unwrap_or(Self { start, end });
            all = Some(Self { start: so_far.start.max(start), end: so_far.end.min(end) });
        }
        all.ok_or(Malformed)
    }
}

fn one(certificate: &[u8]) -> Option<Validity> {
    let (signed, _) = tagged(certificate, SEQUENCE)?;
    let (fields, _) = tagged(signed, SEQUENCE)?;
    // The version is left out if it is the first.
    let mut rest = tagged(fields, VERSION).map_or(fields, |(_, rest)| rest);
    // Serial number, algorithm of the signature, issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (validity, _) = tagged(rest, SEQUENCE)?;
    let (tag, start, rest) = element(validity)?;
    let start = seconds(tag, start)?;
    let (tag, end, _) = element(rest)?;
    Some(Validity { start, end: seconds(tag, end)? })
}

/// The contents of the first element, which must have this tag, and what follows.
fn tagged(der: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(tag, ..)| *tag == expected).map(|(_, contents, rest)| (contents, rest))
}

/// The first element: its tag, its contents, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        0x80 | 0x85.. => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = text.split_at_checked(text.len().checked_sub(10)?)?;
    let year = match (tag, year.len()) {
        (UTC_TIME, 2) => {
            let year = year.parse::<i32>().ok()?;
            if year < 50 { 2000 + year } else { 1900 + year }
        }
        (GENERALIZED_TIME, 4) => year.parse().ok()?,
        _ => return None,
    };
    let part = |at: usize| rest.get(at * 2..at * 2 + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(1)?).ok()?;
    let time = Time::from_hms(part(2)?, part(3)?, part(4)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate that is valid from the beginning of one year to that of another.
    fn certificate(from: i32, to: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
    }

    fn of(years: &[(i32, i32)]) -> (i64, i64) {
        let chain: Vec<_> = years.iter().map(|(from, to)| certificate(*from, *to)).collect();
        let Validity { start, end } = Validity::of(&chain).unwrap();
        (start, end)
    }

    #[test]
    fn years_of_two_and_of_four_digits_are_read() {
        // Until 2049 two digits, then four.
        assert_eq!(of(&[(1975, 2030)]), (157_766_400, 1_893_456_000));
        assert_eq!(of(&[(2020, 2100)]), (1_577_836_800, 4_102_444_800));
    }

    #[test]
    fn a_chain_is_valid_as_long_as_all_of_it() {
        assert_eq!(
            of(&[(2000, 2060), (2020, 2100), (1990, 2070)]),
            (of(&[(2020, 2100)]).0, of(&[(2000, 2060)]).1)
        );
        assert!(Validity::of(&[]).is_err());
    }

    #[test]
    fn times_of_another_form_are_none() {
        assert_eq!(seconds(UTC_TIME, b"700101000000Z"), Some(0));
        for (tag, text) in [
            (UTC_TIME, &b"19700101000000Z"[..]),
            (GENERALIZED_TIME, b"700101000000Z"),
            (UTC_TIME, b"700101000000"),
            (UTC_TIME, b"7001010000Z"),
            (UTC_TIME, b"701301000000Z"),
            (UTC_TIME, b"70010100000+Z"),
            (UTC_TIME, b"Z"),
            (UTC_TIME, b"\xff00101000000Z"),
        ] {
            assert_eq!(seconds(tag, text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_certificate_never_makes_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            prop_assert!(one(&bytes).is_none() || bytes.len() > 40);
            let mut whole = certificate(2020, 2100).to_vec();
            for (at, byte) in damage {
                let at = at.index(whole.len());
                whole[at] = byte;
            }
            let _ = one(&whole);
            let _ = one(&whole[..cut.index(whole.len())]);
        }
    }
}
