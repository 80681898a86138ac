//! A profile for pprof: `go tool pprof`, Pyroscope and others read it.

use std::{collections::HashMap, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use crate::Taken;

/// The labels that samples have.
const PHASE: &str = "phase";
const PLUGIN: &str = "plugin";

/// <https://github.com/google/pprof/blob/v0.0.0-20260302011040-a15ffb7f9dcc/proto/profile.proto>
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

/// Indices of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}

/// Strings by index; the first is empty.
#[derive(Default)]
struct Strings<'a> {
    known: HashMap<&'a str, i64>,
    all: Vec<String>,
}

impl<'a> Strings<'a> {
    fn index(&mut self, text: &'a str) -> i64 {
        *self.known.entry(text).or_insert_with(|| {
            self.all.push(text.to_owned());
            (self.all.len() - 1) as i64
        })
    }
}

/// The profile as pprof reads it, compressed. Samples have the labels `phase` and `plugin`, and one of their group.
#[must_use]
pub fn pprof(taken: &Taken) -> Vec<u8> {
    let profile = message(taken).encode_to_vec();
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    out.write_all(&profile).and_then(|()| out.finish()).unwrap_or_default()
}

fn message(taken: &Taken) -> Profile {
    let mut strings = Strings::default();
    strings.index("");
    let counts = ValueType { kind: strings.index("samples"), unit: strings.index("count") };
    let time = ValueType { kind: strings.index("cpu"), unit: strings.index("nanoseconds") };
    let (phase, plugin) = (strings.index(PHASE), strings.index(PLUGIN));
    let by = taken.groups.as_ref().map(|groups| strings.index(groups.by.name()));
    let mut functions: Vec<Function> = Vec::new();
    let mut known: HashMap<&str, u64> = HashMap::new();
    let mut sample = Vec::with_capacity(taken.profile.stacks.len());
    let period = i64::try_from(taken.profile.period_ns).unwrap_or(i64::MAX);
    for (stack, count) in &taken.profile.stacks {
        // A stack that is not believed has its class alone.
        let whole = std::slice::from_ref(&stack.whole);
        let names = if stack.functions.is_empty() { whole } else { &stack.functions };
        let mut location_id = Vec::with_capacity(names.len());
        for name in names {
            location_id.push(*known.entry(name).or_insert_with(|| {
                let (id, name) = (functions.len() as u64 + 1, strings.index(name));
                functions.push(Function { id, name, system_name: name });
                id
            }));
        }
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let mut label = vec![Label { key: phase, text: strings.index(&stack.whole) }];
        label.extend(stack.part.as_ref().map(|part| Label { key: plugin, text: strings.index(part) }));
        let group = by.zip(stack.group.as_ref());
        label.extend(group.map(|(key, group)| Label { key, text: strings.index(group) }));
        sample.push(Sample { location_id, value: vec![count, count.saturating_mul(period)], label });
    }
    Profile {
        sample_type: vec![counts, time],
        sample,
        location: functions
            .iter()
            .map(|Function { id, .. }| Location { id: *id, line: vec![Line { function_id: *id }] })
            .collect(),
        function: functions,
        string_table: strings.all,
        time_nanos: i64::try_from(taken.start_unix_ns).unwrap_or(i64::MAX),
        duration_nanos: i64::try_from(taken.duration.as_nanos()).unwrap_or(i64::MAX),
        period_type: Some(time),
        period,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::fixture::{by_result, taken};

    fn unpacked(packed: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).expect("it is compressed");
        Profile::decode(&*bytes).expect("it is a message")
    }

    /// Label keys and values of the sample with this count.
    fn labels(profile: &Profile, count: i64) -> Vec<(&str, &str)> {
        let text = |index: i64| profile.string_table[index as usize].as_str();
        let sample = profile.sample.iter().find(|sample| sample.value[0] == count).expect("it is there");
        sample.label.iter().map(|label| (text(label.key), text(label.text))).collect()
    }

    #[test]
    fn samples_have_functions_values_and_labels() {
        let profile = unpacked(&pprof(&taken()));
        let text = |index: i64| profile.string_table[index as usize].as_str();
        assert_eq!(profile.string_table[0], "");
        assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), 100);
        let fit = profile.sample.iter().find(|sample| sample.value[0] == 30).expect("it is there");
        assert_eq!(fit.value[1], 300_000_000);
        let name = |id: &u64| text(profile.function[*id as usize - 1].name);
        assert_eq!(
            fit.location_id.iter().map(name).collect::<Vec<_>>(),
            ["noderesources.fitsRequest", "noderesources.(*Fit).Filter", "main.main"]
        );
        assert_eq!(labels(&profile, 30), [("phase", "filter"), ("plugin", "Fit")]);
        assert_eq!(
            (profile.period, text(profile.period_type.expect("it has one").unit)),
            (10_000_000, "nanoseconds")
        );
    }

    #[test]
    fn groups_are_a_label() {
        let profile = unpacked(&pprof(&by_result()));
        assert_eq!(
            labels(&profile, 20),
            [("phase", "filter"), ("plugin", "Fit"), ("result", "Unschedulable")]
        );
        assert_eq!(labels(&profile, 39), [("phase", "garbageCollector")]);
    }
}
