//! A profile for pprof: `go tool pprof`, Pyroscope and others read it. What was written is read again, to compare with it.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use gotrace::profiler::Stack;
use prost::{
    Message,
    encoding::{self, DecodeContext},
};
use wire::MAX_FRAMES;

use crate::Taken;

/// Bytes of a profile that is read: of 100,000 stacks of 64 frames about a third.
const MAX_BYTES: u64 = 64 << 20;
/// Samples, functions, locations and strings of a profile that is read, together. A short one of each takes much more memory than
/// it has bytes.
const MAX_ENTRIES: usize = 2_000_000;
/// Samples of one stack: of a thousand CPUs and 1,000 a second, for 300 hours.
const MAX_COUNT: i64 = 1 << 40;
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

/// Why an earlier profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// The given path.
        path: PathBuf,
        /// Error of the read.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "`{path}` is not a profile of schedspan: {why}; `schedspan profile -o pprof --file FILE` writes one"
    )]
    Foreign {
        /// The given path.
        path: PathBuf,
        /// What is not as it should be.
        why: String,
    },
    /// This form holds no differences.
    #[error(
        "`go tool pprof -base FILE NEW` makes the difference of two profiles: write this one without --base"
    )]
    Difference,
}

/// Reads a profile that [`pprof`] has made. It does not say of which processes it is, and is not divided into groups.
///
/// # Errors
///
/// When the file cannot be read, or has something else.
pub fn read(path: &Path) -> Result<Taken, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|source| Error::Unreadable { path: path.into(), source })?;
    parse(&bytes).map_err(|why| Error::Foreign { path: path.into(), why })
}

/// Reads what [`pprof`] has made.
fn parse(packed: &[u8]) -> Result<Taken, String> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it is not compressed by gzip: {error}"))?;
    if bytes.len().max(packed.len()) as u64 > MAX_BYTES {
        return Err(format!("it has more than {} MiB", MAX_BYTES >> 20));
    }
    let malformed = |error: prost::DecodeError| error.to_string();
    if entries(&bytes).map_err(malformed)? > MAX_ENTRIES {
        return Err(format!("it has more than {MAX_ENTRIES} entries"));
    }
    taken(&Profile::decode(&*bytes).map_err(malformed)?).map_err(str::to_owned)
}

/// Number of fields of a message.
fn entries(mut bytes: &[u8]) -> Result<usize, prost::DecodeError> {
    let mut count = 0;
    while !bytes.is_empty() {
        let (tag, wire_type) = encoding::decode_key(&mut bytes)?;
        encoding::skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
        count += 1;
    }
    Ok(count)
}

/// The inverse of [`message`].
fn taken(profile: &Profile) -> Result<Taken, &'static str> {
    let strings: Vec<Arc<str>> = profile.string_table.iter().map(|text| text.as_str().into()).collect();
    let text = |index: i64| {
        let text = usize::try_from(index).ok().and_then(|index| strings.get(index));
        text.ok_or("it names a string that it does not have")
    };
    let types = profile.sample_type.iter().map(|ValueType { kind, .. }| text(*kind));
    if types.collect::<Result<Vec<_>, _>>()?.iter().map(|kind| &***kind).ne(["samples", "cpu"]) {
        return Err("its values are not samples and CPU time");
    }
    let functions: HashMap<u64, i64> =
        profile.function.iter().map(|Function { id, name, .. }| (*id, *name)).collect();
    let mut names: HashMap<u64, &Arc<str>> = HashMap::new();
    for Location { id, line } in &profile.location {
        let [Line { function_id }] = line.as_slice() else { return Err("a location is not one function") };
        let name = functions.get(function_id).ok_or("it names a function that it does not have")?;
        names.insert(*id, text(*name)?);
    }
    let period_ns = u64::try_from(profile.period).map_err(|_| "its period is negative")?;
    let mut read = gotrace::profiler::Profile { period_ns, ..Default::default() };
    for Sample { location_id, value, label } in &profile.sample {
        let count = value.first().filter(|count| (0..=MAX_COUNT).contains(*count));
        let count = count.ok_or("a number of samples is out of range")?.unsigned_abs();
        // With the caller that a function without a frame hides.
        if location_id.len() > MAX_FRAMES + 1 {
            return Err("a stack has more frames than schedspan reads");
        }
        let (mut whole, mut part) = (None, None);
        for Label { key, text: value } in label {
            match &**text(*key)? {
                PHASE => whole = Some(Arc::clone(text(*value)?)),
                PLUGIN => part = Some(Arc::clone(text(*value)?)),
                // A group.
                _ => {}
            }
        }
        let whole = whole.ok_or("a sample has no label `phase`")?;
        let name = |id| names.get(id).copied().cloned().ok_or("it names a location that it does not have");
        let mut functions = location_id.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        // A stack that is not believed.
        if functions == [Arc::clone(&whole)] {
            functions.clear();
        }
        *read.stacks.entry(Stack { group: None, whole, part, functions }.into()).or_default() += count;
    }
    Ok(Taken {
        profile: read,
        duration: Duration::from_nanos(u64::try_from(profile.duration_nanos).unwrap_or_default()),
        start_unix_ns: u64::try_from(profile.time_nanos).unwrap_or_default(),
        groups: None,
    })
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
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{by_result, taken};

    fn unpacked(packed: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).expect("it is compressed");
        Profile::decode(&*bytes).expect("it is a message")
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(bytes).and_then(|()| out.finish()).expect("memory takes it")
    }

    /// As it is read again.
    fn bare(taken: Taken) -> Taken {
        let profile = gotrace::profiler::Profile { pids: Vec::new(), ..taken.profile };
        Taken { profile, ..taken }
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

    #[test]
    fn what_was_written_is_read_and_groups_are_put_together() {
        for written in [taken(), by_result()] {
            let read = parse(&pprof(&written)).expect("it is one of ours");
            assert_eq!(read, bare(taken()));
        }
    }

    #[test]
    fn a_file_that_is_not_one_of_ours_is_named_with_the_next_step() {
        let folder = std::env::temp_dir().join(format!("schedspan-pprof-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        let says = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).expect("it can be written");
            read(&path).expect_err("it is not one").to_string()
        };
        let text = says("a.txt", b"plain text");
        assert!(text.contains("a.txt` is not a profile of schedspan: it is not compressed"), "{text}");
        assert!(text.ends_with("`schedspan profile -o pprof --file FILE` writes one"), "{text}");
        let mut of_go = message(&taken());
        of_go.sample.iter_mut().for_each(|sample| sample.label.clear());
        let text = says("go.pb.gz", &packed(&of_go.encode_to_vec()));
        assert!(text.contains("a sample has no label `phase`"), "{text}");
        let text = says("heap.pb.gz", &packed(&Profile::default().encode_to_vec()));
        assert!(text.contains("its values are not samples and CPU time"), "{text}");
        assert!(
            read(&folder.join("none")).expect_err("it is not there").to_string().starts_with("cannot read `")
        );
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }

    #[test]
    fn what_takes_much_memory_is_refused() {
        let says = |bytes: &[u8]| parse(&packed(bytes)).expect_err("it is too much");
        assert_eq!(says(&vec![0; MAX_BYTES as usize + 1]), "it has more than 64 MiB");
        // Samples without anything in them.
        assert_eq!(says(&[0x12, 0].repeat(MAX_ENTRIES + 1)), "it has more than 2000000 entries");
        let with = |change: fn(&mut Sample)| {
            let mut profile = message(&taken());
            profile.sample.iter_mut().for_each(change);
            parse(&packed(&profile.encode_to_vec())).expect_err("it is too much")
        };
        let deep = with(|sample| sample.location_id = vec![1; MAX_FRAMES + 2]);
        assert_eq!(deep, "a stack has more frames than schedspan reads");
        assert_eq!(with(|sample| sample.value = vec![i64::MAX]), "a number of samples is out of range");
        assert_eq!(with(|sample| sample.value.clear()), "a number of samples is out of range");
        assert_eq!(with(|sample| sample.location_id = vec![99]), "it names a location that it does not have");
    }

    fn stacks() -> impl Strategy<Value = Vec<(Stack, u64)>> {
        let name = || "[a-z]{1,3}".prop_map(|name| Arc::from(name.as_str()));
        let functions = proptest::collection::vec("[a-z]\\.[A-Z]{1,2}", 0..6);
        let stack = (name(), proptest::option::of(name()), functions).prop_map(|(whole, part, functions)| {
            let functions = functions.iter().map(|name| name.as_str().into()).collect();
            Stack { group: None, whole, part, functions }
        });
        proptest::collection::vec((stack, 1..1_000_u64), 0..20)
    }

    proptest! {
        #[test]
        fn any_profile_survives_its_file(stacks in stacks(), period_ns in 0..1_u64 << 40) {
            let stacks = stacks.into_iter().map(|(stack, count)| (stack.into(), count)).collect();
            let profile = gotrace::profiler::Profile { stacks, period_ns, ..Default::default() };
            let written = Taken { profile, ..taken() };
            prop_assert_eq!(parse(&pprof(&written)), Ok(written));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(parse(&bytes));
            drop(parse(&packed(&bytes)));
        }

        #[test]
        fn no_damage_makes_it_panic(
            damages in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut bytes = message(&by_result()).encode_to_vec();
            for (at, byte) in damages {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(taken) = parse(&packed(&bytes)) {
                drop((crate::text(&taken), crate::flame(&taken, Some(&taken)), pprof(&taken)));
            }
            bytes.truncate(cut.index(bytes.len()));
            drop(parse(&packed(&bytes)));
        }
    }
}
