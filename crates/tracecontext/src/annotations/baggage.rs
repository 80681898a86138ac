//! Members of W3C baggage: <https://www.w3.org/TR/baggage/>.

use percent_encoding::percent_decode_str;

use crate::Refusal;

/// The specification's minimum that must be propagated; no more is read.
const MAX_BYTES: usize = 8192;
const MAX_MEMBERS: usize = 64;
/// Most bytes of a value that becomes an attribute.
const MAX_VALUE_BYTES: usize = 256;

/// The members with these names, by their numbers in the list; of several with one name the first. Where the whole is too
/// large, that is said once.
pub(super) fn members(baggage: &str, names: &[String]) -> Vec<(u8, Result<String, Refusal>)> {
    if baggage.len() > MAX_BYTES || baggage.split(',').count() > MAX_MEMBERS {
        return vec![(0, Err(Refusal::BaggageTooLarge))];
    }
    let find = |name: &String| {
        let member = |member: &str| {
            // Properties follow behind semicolons.
            let (key, value) = member.split(';').next()?.split_once('=')?;
            (key.trim() == name).then(|| decode(value.trim()))
        };
        baggage.split(',').find_map(member)
    };
    let found = names.iter().enumerate().filter_map(|(index, name)| Some((index as u8, find(name)?)));
    found.collect()
}

fn decode(value: &str) -> Result<String, Refusal> {
    if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Refusal::BaggageSyntax);
    }
    let value = percent_decode_str(value).decode_utf8().map_err(|_| Refusal::NotUtf8)?;
    if value.len() > MAX_VALUE_BYTES {
        return Err(Refusal::BaggageTooLarge);
    }
    Ok(value.into_owned())
}
