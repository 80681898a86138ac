//! A case describes probe sites, as a plan of kube-scheduler has them, and records from there.

use arbitrary::{Result, Unstructured};
use goexe::Class;
use gotrace::{
    decode::Decoder,
    plan::{PlannedSite, Reading, Role, Slot},
    program::{Detail, Function as _, Named},
    recording::{Line, MAX_LINE},
};
use kube_scheduler::{KubeScheduler, table::Function, values::Value};
use wire::{Hit, LongTextHit, MAX_READS, MAX_TEXTS, MAX_WORDS, MapChunk, MapHit, Site, TextHit, TopHit};

/// The process that most records are of.
const TARGET: u32 = 0;
/// Virtual addresses of what has a name there.
const PLUGIN: u64 = 0x1000;
const ERROR: u64 = 0x2000;
/// The error types whose message is read.
const TYPES: &[&str] = &["*errors.errorString"];
const ROLES: [Role; 6] =
    [Role::Entry, Role::ReturnSite, Role::NextEntry, Role::Ret, Role::InTurn, Role::Metric];
const LENGTHS: [usize; 6] = [
    size_of::<Hit>(),
    size_of::<TextHit>(),
    size_of::<LongTextHit>(),
    size_of::<TopHit>(),
    size_of::<MapHit>(),
    size_of::<MapChunk>(),
];
/// What can be made of a word, one for each kind of value.
const OF_WORDS: [Reading<Value>; 11] = [
    Reading::Value(Value::Pod),
    Reading::Value(Value::StatusCode),
    Reading::Value(Value::Ignorable),
    Reading::Value(Value::QueueTimestamp),
    Reading::Value(Value::Plugin),
    Reading::Failure(Value::StatusCode),
    Reading::StartWall,
    Reading::StartMonotonic,
    Reading::Result,
    Reading::ResultLength,
    Reading::ReturnAddress,
];
/// What can be made of a string.
const OF_TEXTS: [Reading<Value>; 5] = [
    Reading::Value(Value::PodName),
    Reading::Value(Value::Message),
    Reading::MessageOf(Value::StatusReason, TYPES),
    Reading::TextAt(Value::VictimNames, 0),
    Reading::TextAt(Value::VictimNames, u8::MAX),
];

/// Decodes the records.
///
/// # Panics
///
/// If an event is not the same when it was recorded and read again.
pub fn run(case: &[u8]) {
    // A case that is too short has fewer records.
    let _short = records(&mut Unstructured::new(case));
}

fn records(case: &mut Unstructured<'_>) -> Result<()> {
    let mut decoder = Decoder::<KubeScheduler>::default();
    let bias = case.arbitrary()?;
    let plugin = Named {
        name: "Fit".into(),
        typ: "noderesources.Fit".into(),
        extension_points: Vec::new(),
        module: None,
        descriptor: PLUGIN,
        constant: None,
    };
    decoder.add_names(TARGET, &[plugin], bias);
    decoder.add_errors(TARGET, &[(ERROR, TYPES[0].into()), (ERROR + 8, "*fmt.wrapError".into())], bias);
    decoder.set_clock(case.arbitrary()?);
    let sites = case.int_in_range(1..=3)?;
    for number in 0..sites {
        decoder.add(number, &site(case)?);
    }
    while !case.is_empty() {
        decode(&mut decoder, &record(case, bias, sites)?);
    }
    Ok(())
}

fn decode(decoder: &mut Decoder<KubeScheduler>, record: &[u8]) {
    if Decoder::<KubeScheduler>::is_part(record) {
        let _whole = decoder.add_part(record);
        return;
    }
    let Ok(event) = decoder.decode(record) else { return };
    let line = Line::Event(std::borrow::Cow::Owned(event));
    let json = serde_json::to_vec(&line).expect("every event can be written");
    assert!(json.len() <= MAX_LINE, "a line of {} bytes", json.len());
    let again: Line<'_, KubeScheduler> = serde_json::from_slice(&json).expect("it was just written");
    assert_eq!(again, line);
}

fn site(case: &mut Unstructured<'_>) -> Result<PlannedSite<KubeScheduler>> {
    let mut values = Vec::new();
    for _ in 0..case.int_in_range(0..=MAX_READS)? {
        // Up to one too many.
        values.push(if case.ratio(2, 3)? {
            (*case.choose(&OF_WORDS)?, Slot::Word(case.int_in_range(0..=MAX_WORDS)?))
        } else {
            (*case.choose(&OF_TEXTS)?, Slot::Text(case.int_in_range(0..=MAX_TEXTS)?))
        });
    }
    Ok(PlannedSite {
        function: *case.choose(Function::ALL)?,
        role: *case.choose(&ROLES)?,
        detail: Detail::Full,
        address: 0,
        file_offset: 0,
        class: Class::Emulated,
        stack_depth: case.arbitrary()?,
        symbol: String::new(),
        called_by: case.arbitrary::<Option<(u64, u64)>>()?.map(|(start, end)| start..end),
        spec: Site::default(),
        values,
        list: *case.choose(&[None, Some(Value::Scores), Some(Value::Statuses)])?,
    })
}

/// A few words, repeated up to the length of a record, and changed in a few places.
fn record(case: &mut Unstructured<'_>, bias: u64, sites: u32) -> Result<Vec<u8>> {
    let length = if case.ratio(15, 16)? { *case.choose(&LENGTHS)? } else { case.int_in_range(0..=200)? };
    let mut words = Vec::new();
    for _ in 0..case.int_in_range(1..=16)? {
        words.push(match case.int_in_range(0..=4)? {
            0 => 0,
            1 => bias.wrapping_add(PLUGIN),
            2 => bias.wrapping_add(ERROR + 8 * u64::from(case.arbitrary::<bool>()?)),
            _ => case.arbitrary()?,
        });
    }
    let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).cycle().take(length).collect();
    let mut put = |at: usize, value: u32| {
        if let Some(place) = record.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
    };
    put(std::mem::offset_of!(Hit, site), case.int_in_range(0..=sites)?);
    put(std::mem::offset_of!(Hit, target), case.int_in_range(0..=7)? / 7);
    put(std::mem::offset_of!(Hit, faults), case.arbitrary::<u16>()?.into());
    for _ in 0..case.int_in_range(0..=8)? {
        put(4 * usize::from(case.arbitrary::<u16>()? % 2048), case.arbitrary()?);
    }
    Ok(record)
}
