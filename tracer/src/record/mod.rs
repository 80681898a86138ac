//! What the eBPF program sent, in the scheduler's terms.

mod nodes;

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use wire::{Hit, LONG_TEXT_LEN, LongTextHit, MAX_TEXTS, MAX_WORDS, MapHit, TEXT_LEN, TextHit, TopHit};

pub use self::nodes::{Candidate, Rejection, Scores, Statuses};

use crate::plan::{Function, MESSAGE_FIRST, PlannedSite, Plugin, Role, STATUS_ERROR, Slot, Value};

/// Seconds from year 1 to 1885, the zero of a `time.Time` with a monotonic reading, and to 1970.
/// <https://github.com/golang/go/blob/go1.26.5/src/time/time.go#L504-L514>
const GO_WALL_ZERO: i64 = (1884 * 365 + 1884 / 4 - 1884 / 100 + 1884 / 400) * 86_400;
const UNIX_ZERO: i64 = (1969 * 365 + 1969 / 4 - 1969 / 100 + 1969 / 400) * 86_400;

/// The longest that may pass between two readings of clocks.
const MAX_BETWEEN_CLOCKS_NS: i64 = 10_000_000;

/// One hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// Which scheduler process.
    pub target: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Which goroutine.
    pub goroutine: u64,
    /// Bytes from the top of the goroutine's stack to the called function's frame: the same at a call's entry and
    /// at its return.
    pub depth: u64,
    /// Which function.
    pub function: Function,
    /// What about it.
    pub role: Role,
    /// How much later what came next began, nanoseconds: where the time is that of an end, and of a beginning behind it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub took_ns: u64,
    /// Names the last loss of a record before this one.
    pub last_loss: u64,
    /// What was read there.
    #[serde(default)]
    pub values: Values,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The values that sites read. `None`: not read there, or not readable at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "each is a `Value` and documented there")]
pub struct Values {
    pub cycle_state: Option<u64>,
    pub pod: Option<u64>,
    pub queued_pod_info: Option<u64>,
    pub pod_name: Option<String>,
    pub pod_namespace: Option<String>,
    pub pod_uid: Option<String>,
    pub profile: Option<String>,
    pub attempts: Option<u64>,
    /// Nanoseconds since the Unix epoch.
    pub queue_timestamp: Option<u64>,
    pub node_name: Option<String>,
    pub status_code: Option<i64>,
    pub status_reason: Option<String>,
    pub status_plugin: Option<String>,
    /// Name of the plugin.
    pub plugin: Option<Arc<str>>,
    /// Nanoseconds since the Unix epoch.
    pub first_attempt: Option<u64>,
    pub queue: Option<String>,
    pub queue_event: Option<String>,
    pub labels: Option<u64>,
    pub hint_length: Option<u64>,
    pub evaluated_nodes: Option<u64>,
    pub feasible_nodes: Option<u64>,
    pub restricted_to: Option<u64>,
    pub message: Option<String>,
    pub preemption_node: Option<String>,
    pub victims: Option<u64>,
    pub scores: Option<Scores>,
    pub statuses: Option<Statuses>,
    pub group_name: Option<String>,
    pub group_namespace: Option<String>,
    pub group_size: Option<u64>,
    pub placement_name: Option<String>,
    pub condition_reason: Option<String>,
    pub extender_url: Option<String>,
    pub extender_verb: Option<String>,
    pub ignorable: Option<bool>,
    pub nodes: Option<u64>,
    pub api_call: Option<u64>,
    pub preemption_candidate: Option<u64>,
    /// When the call began that is over, `CLOCK_MONOTONIC`, nanoseconds.
    pub started_ns: Option<u64>,
    /// Whether a panic is its end.
    pub panics: Option<bool>,
    /// The first ones' names, as far as they could be read; there may be fewer victims.
    pub victim_names: [Option<String>; 3],
}

/// Why a record cannot be understood. It never happens between a daemon and its own eBPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Neither a hit nor a hit with strings.
    #[error("a record of {0} bytes")]
    Length(usize),
    /// A site that has been taken away, or never was.
    #[error("a record of site {0}, which is not attached")]
    Site(u32),
}

/// Knows what the sites' numbers mean, and whose plugins and types of errors are where.
#[derive(Debug, Default)]
pub struct Decoder {
    /// By their number.
    sites: Vec<Option<Meaning>>,
    /// Names of plugins by process and address, of their type descriptor or of the name itself.
    plugins: HashMap<(u32, u64), Arc<str>>,
    /// Names of types by process and address of their descriptor.
    errors: HashMap<(u32, u64), Arc<str>>,
    /// By process, how far from its own addresses the executable is loaded.
    biases: HashMap<u32, u64>,
    /// Unix time at `CLOCK_MONOTONIC` 0, nanoseconds.
    unix_ns_at_zero: u64,
    /// By process, what `CLOCK_MONOTONIC` was at the zero of Go's own monotonic clock.
    zeros: HashMap<u32, i64>,
}

#[derive(Debug)]
struct Meaning {
    function: Function,
    role: Role,
    stack_depth: i64,
    called_by: Option<Range<u64>>,
    values: Vec<(Value, Slot)>,
}

impl Decoder {
    /// From now on, a hit with this number is a hit at this site.
    pub fn add(&mut self, number: u32, site: &PlannedSite) {
        let PlannedSite { function, role, stack_depth, called_by, values, .. } = site.clone();
        let meaning = Meaning { function, role, stack_depth, called_by, values };
        let number = number as usize;
        if self.sites.len() <= number {
            self.sites.resize_with(number + 1, || None);
        }
        self.sites[number] = Some(meaning);
    }

    /// The number has no meaning any more.
    pub fn remove(&mut self, number: u32) {
        if let Some(meaning) = self.sites.get_mut(number as usize) {
            *meaning = None;
        }
    }

    /// From now on, the plugins of a process are known: `bias` is how far from its own addresses the executable is
    /// loaded.
    pub fn add_plugins(&mut self, target: u32, plugins: &[Plugin], bias: u64) {
        self.biases.insert(target, bias);
        for Plugin { name, descriptor, constant, .. } in plugins {
            let name: Arc<str> = name.as_str().into();
            for address in constant.iter().chain([descriptor]) {
                self.plugins.insert((target, address.wrapping_add(bias)), Arc::clone(&name));
            }
        }
    }

    /// From now on, the types of errors of a process are known, by the addresses of their descriptors.
    pub fn add_errors(&mut self, target: u32, errors: &[(u64, String)], bias: u64) {
        for (descriptor, name) in errors {
            self.errors.insert((target, descriptor.wrapping_add(bias)), name.as_str().into());
        }
    }

    /// From now on, the clocks stand so: `CLOCK_MONOTONIC` is 0 at this Unix time, nanoseconds.
    pub fn set_clock(&mut self, unix_ns_at_zero: u64) {
        self.unix_ns_at_zero = unix_ns_at_zero;
    }

    /// The process has ended.
    pub fn remove_names(&mut self, target: u32) {
        self.zeros.remove(&target);
        self.biases.remove(&target);
        self.plugins.retain(|(of, _), _| *of != target);
        self.errors.retain(|(of, _), _| *of != target);
    }

    /// Reads one record of the ring buffer.
    pub fn decode(&mut self, record: &[u8]) -> Result<Event, Undecodable> {
        // The strings' lengths, the strings, and the room for each.
        let texts = match record.len() {
            length if [size_of::<Hit>(), size_of::<TopHit>(), size_of::<MapHit>()].contains(&length) => None,
            length if length == size_of::<TextHit>() => {
                Some((record[size_of::<Hit>()..].split_at(4 * MAX_TEXTS), TEXT_LEN))
            }
            length if length == size_of::<LongTextHit>() => {
                Some((record[size_of::<Hit>()..].split_at(8), LONG_TEXT_LEN))
            }
            length => return Err(Undecodable::Length(length)),
        };
        let long = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap_or_default());
        let int = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap_or_default());
        let site = int(24);
        let Meaning { function, role, stack_depth, called_by, values } =
            self.sites.get(site as usize).and_then(Option::as_ref).ok_or(Undecodable::Site(site))?;
        let (target, faults) = (int(28), int(32));
        let mut read = Values::default();
        let (mut error, mut wall, mut monotonic, mut code) = (None, None, None, (None, None));
        for (index, (value, slot)) in values.iter().enumerate() {
            if faults >> index & 1 != 0 {
                continue;
            }
            match *slot {
                Slot::Word(number) if number < MAX_WORDS => {
                    let word = long(48 + 8 * number);
                    match value {
                        Value::PluginType => read.plugin = self.plugins.get(&(target, word)).cloned(),
                        Value::ErrorType => {
                            read.status_code = Some(i64::from(word != 0));
                            error = (word != 0).then(|| self.errors.get(&(target, word)));
                        }
                        Value::StartWall => wall = unix_ns(word),
                        Value::StartMonotonic => monotonic = Some(word.cast_signed()),
                        Value::CodeName => code.0 = Some(word),
                        Value::CodeNameLength => code.1 = Some(word),
                        Value::ReturnAddress => {
                            let bias = self.biases.get(&target).copied().unwrap_or_default();
                            let address = word.wrapping_sub(bias);
                            read.panics = called_by.as_ref().map(|function| !function.contains(&address));
                        }
                        _ => read.set_word(*value, word),
                    }
                }
                Slot::Text(number) => {
                    if let Some(text) =
                        texts.and_then(|((lengths, texts), room)| text(lengths, texts, room, number))
                    {
                        read.set_text(*value, text);
                    }
                }
                Slot::Word(_) => {}
            }
        }
        // What was read of another type of error is anything.
        if let Some(error) = error {
            let of_api = values.iter().any(|(value, _)| *value == Value::ApiErrorMessage);
            let expected: &[&str] = if of_api { &[STATUS_ERROR] } else { &MESSAGE_FIRST };
            if !error.is_some_and(|error| expected.contains(&error.as_ref())) {
                read.status_reason = error.map(ToString::to_string);
            }
        }
        if faults & 1 == 0 && record.len() == size_of::<TopHit>() {
            read.scores = nodes::scores(record);
        }
        if faults & 1 == 0 && record.len() == size_of::<MapHit>() {
            read.statuses = nodes::statuses(record, |address| self.plugins.get(&(target, address)).cloned());
        }
        if let (Some(begins), Some(length)) = code {
            read.status_code = code_named(begins, length);
        }
        if let (Some(wall), Some(monotonic)) = (wall, monotonic) {
            read.started_ns = started(self.zeros.entry(target), self.unix_ns_at_zero, wall, monotonic);
        }
        Ok(Event {
            target,
            time_ns: long(0),
            took_ns: int(36).into(),
            goroutine: long(8),
            depth: long(16).wrapping_add_signed(-stack_depth),
            function: *function,
            role: *role,
            last_loss: long(40),
            values: read,
        })
    }
}

/// `CLOCK_MONOTONIC` at a `time.Time`, whose process has this among its zeros. Go reads both clocks one after the other, and
/// counts the monotonic one from when the process began
/// (<https://github.com/golang/go/blob/go1.26.5/src/time/time.go#L1325-L1345>): when that was, the reading tells best in which
/// least time passed between the two.
fn started(zero: Entry<'_, u32, i64>, unix_ns_at_zero: u64, wall: u64, monotonic: i64) -> Option<u64> {
    let by_wall = i64::try_from(wall).ok()?.checked_sub_unsigned(unix_ns_at_zero)?;
    let seen = by_wall.checked_sub(monotonic)?;
    let zero = zero.or_insert(seen);
    // More is a wall clock that was set.
    if (0..MAX_BETWEEN_CLOCKS_NS).contains(&seen.saturating_sub(*zero)) {
        *zero = seen;
    }
    u64::try_from(monotonic.checked_add(*zero)?).ok()
}

/// `Status.code` by what its name begins with and how long it is.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go#L80-L81>
fn code_named(begins: u64, length: u64) -> Option<i64> {
    const NAMES: [&[u8]; 7] = [
        b"Success",
        b"Error",
        b"Unschedulable",
        b"UnschedulableAndUnresolvable",
        b"Wait",
        b"Skip",
        b"Pending",
    ];
    let begins = begins.to_ne_bytes();
    let is = |name: &&[u8]| {
        name.len() as u64 == length && name.iter().zip(begins).all(|(byte, read)| *byte == read)
    };
    NAMES.iter().position(is).and_then(|code| i64::try_from(code).ok())
}

impl Values {
    fn set_word(&mut self, value: Value, word: u64) {
        match value {
            Value::CycleState => self.cycle_state = Some(word),
            Value::Pod => self.pod = Some(word),
            Value::QueuedPodInfo => self.queued_pod_info = Some(word),
            Value::Attempts => self.attempts = Some(word),
            Value::QueueTimestamp => self.queue_timestamp = unix_ns(word),
            Value::StatusCode => self.status_code = Some(word.cast_signed()),
            Value::FirstAttempt => self.first_attempt = unix_ns(word),
            Value::Labels => self.labels = Some(word),
            Value::HintLength => self.hint_length = Some(word),
            Value::EvaluatedNodes => self.evaluated_nodes = Some(word),
            Value::FeasibleNodes => self.feasible_nodes = Some(word),
            Value::RestrictedTo => self.restricted_to = Some(word),
            Value::Victims => self.victims = Some(word),
            Value::GroupSize => self.group_size = Some(word),
            Value::Ignorable => self.ignorable = Some(word & 0xff != 0),
            Value::Nodes => self.nodes = Some(word),
            Value::ApiCall => self.api_call = Some(word),
            Value::PreemptionCandidate => self.preemption_candidate = Some(word),
            _ => {}
        }
    }

    fn set_text(&mut self, value: Value, text: String) {
        match value {
            Value::PodName => self.pod_name = Some(text),
            Value::PodNamespace => self.pod_namespace = Some(text),
            Value::PodUid => self.pod_uid = Some(text),
            Value::Profile => self.profile = Some(text),
            Value::NodeName => self.node_name = Some(text),
            Value::StatusReason => self.status_reason = Some(text),
            Value::StatusPlugin => self.status_plugin = Some(text),
            Value::Queue => self.queue = Some(text),
            Value::QueueEvent => self.queue_event = Some(text),
            Value::Message => self.message = Some(text),
            Value::PreemptionNode => self.preemption_node = Some(text),
            Value::GroupName => self.group_name = Some(text),
            Value::GroupNamespace => self.group_namespace = Some(text),
            Value::PlacementName => self.placement_name = Some(text),
            Value::ConditionReason => self.condition_reason = Some(text),
            Value::ExtenderUrl => self.extender_url = Some(text),
            Value::ExtenderVerb => self.extender_verb = Some(text),
            Value::ErrorMessage | Value::ApiErrorMessage => self.status_reason = Some(text),
            Value::FirstVictim => self.victim_names[0] = Some(text),
            Value::SecondVictim => self.victim_names[1] = Some(text),
            Value::ThirdVictim => self.victim_names[2] = Some(text),
            _ => {}
        }
    }
}

/// A string that was cut says so.
fn text(lengths: &[u8], texts: &[u8], room: usize, number: usize) -> Option<String> {
    let length = lengths.get(4 * number..4 * number + 4)?;
    let length = u32::from_ne_bytes(length.try_into().ok()?) as usize;
    let text = texts.get(number * room..number * room + length.min(room))?;
    let mut text = String::from_utf8_lossy(text).into_owned();
    if length > room {
        text.push('…');
    }
    Some(text)
}

/// The wall clock in the first word of a `time.Time`, which `time.Now` fills with seconds since 1885 and
/// nanoseconds. `None` for a time without them: one that did not come from the clock.
fn unix_ns(wall: u64) -> Option<u64> {
    const HAS_MONOTONIC: u64 = 1 << 63;
    if wall & HAS_MONOTONIC == 0 {
        return None;
    }
    let seconds = (wall << 1 >> 31).cast_signed() + GO_WALL_ZERO - UNIX_ZERO;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(wall & ((1 << 30) - 1))
}

#[cfg(test)]
mod tests {
    use goexe::Class;
    use wire::Site;

    use super::*;

    fn decoder(role: Role, values: &[(Value, Slot)]) -> Decoder {
        let mut decoder = Decoder::default();
        let site = PlannedSite {
            function: Function::Pop,
            role,
            address: 0,
            file_offset: 0,
            class: Class::Emulated,
            stack_depth: if role == Role::ReturnSite { -8 } else { 0 },
            symbol: String::new(),
            called_by: Some(0x1000..0x2000),
            spec: Site::default(),
            values: values.to_vec(),
        };
        decoder.add(7, &site);
        decoder
    }

    fn hit(site: u32, faults: u32, words: [u64; MAX_WORDS]) -> Vec<u8> {
        let longs = [1_000u64, 42, 512];
        let ints = [site, 3, faults, 0];
        let mut bytes: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
        bytes.extend(ints.iter().flat_map(|int| int.to_ne_bytes()));
        bytes.extend(0u64.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn words(first: &[u64]) -> [u64; MAX_WORDS] {
        std::array::from_fn(|place| first.get(place).copied().unwrap_or_default())
    }

    #[test]
    fn a_hit_carries_what_its_site_reads() {
        let mut decoder =
            decoder(Role::Entry, &[(Value::Pod, Slot::Word(0)), (Value::Attempts, Slot::Word(1))]);
        let event = decoder.decode(&hit(7, 0, words(&[0xc000, 2]))).expect("it is well-formed");
        assert_eq!((event.target, event.time_ns, event.goroutine, event.depth), (3, 1_000, 42, 512));
        assert_eq!((event.values.pod, event.values.attempts), (Some(0xc000), Some(2)));
        assert_eq!(event.values.cycle_state, None);
    }

    #[test]
    fn a_value_that_could_not_be_read_is_absent() {
        let mut decoder =
            decoder(Role::Entry, &[(Value::Pod, Slot::Word(0)), (Value::Attempts, Slot::Word(1))]);
        let event = decoder.decode(&hit(7, 0b01, words(&[0, 2]))).expect("it is well-formed");
        assert_eq!((event.values.pod, event.values.attempts), (None, Some(2)));
    }

    #[test]
    fn a_return_site_has_the_depth_of_the_call_that_returned() {
        let event = decoder(Role::ReturnSite, &[]).decode(&hit(7, 0, [0; MAX_WORDS])).expect("well-formed");
        assert_eq!(event.depth, 520);
    }

    #[test]
    fn a_string_longer_than_its_slot_is_marked_as_cut() {
        let mut decoder = decoder(Role::Entry, &[(Value::PodName, Slot::Text(1))]);
        let mut bytes = hit(7, 0, [0; MAX_WORDS]);
        for length in [0u32, 300, 0, 0] {
            bytes.extend(length.to_ne_bytes());
        }
        bytes.extend([b'x'; MAX_TEXTS * TEXT_LEN]);
        let name = decoder.decode(&bytes).expect("well-formed").values.pod_name.expect("it was read");
        assert_eq!(name, format!("{}…", "x".repeat(TEXT_LEN)));
    }

    #[test]
    fn a_long_string_has_a_record_of_its_own() {
        let mut decoder = decoder(Role::Entry, &[(Value::Message, Slot::Text(0))]);
        let mut bytes = hit(7, 0, [0; MAX_WORDS]);
        for word in [1_000u32, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([b'x'; LONG_TEXT_LEN]);
        assert_eq!(decoder.decode(&bytes).expect("well-formed").values.message, Some("x".repeat(1_000)));
    }

    #[test]
    fn a_plugin_is_known_by_its_type_in_each_process() {
        let mut decoder = decoder(Role::Entry, &[(Value::PluginType, Slot::Word(0))]);
        let plugin = Plugin {
            name: "NodeName".into(),
            typ: String::new(),
            extension_points: Vec::new(),
            module: None,
            descriptor: 0x1000,
            constant: None,
        };
        // `hit` is of process 3.
        decoder.add_plugins(3, std::slice::from_ref(&plugin), 0x40_0000);
        decoder.add_plugins(4, &[plugin], 0);
        let name = |decoder: &mut Decoder, address| {
            decoder.decode(&hit(7, 0, words(&[address]))).expect("well-formed").values.plugin
        };
        assert_eq!(name(&mut decoder, 0x40_1000).as_deref(), Some("NodeName"));
        assert_eq!(name(&mut decoder, 0x1000), None);
        decoder.remove_names(3);
        assert_eq!(name(&mut decoder, 0x40_1000), None);
    }

    #[test]
    fn records_of_another_length_or_site_are_refused() {
        let mut decoder = decoder(Role::Entry, &[]);
        assert_eq!(decoder.decode(&[0; 71]), Err(Undecodable::Length(71)));
        assert_eq!(decoder.decode(&hit(8, 0, [0; MAX_WORDS])), Err(Undecodable::Site(8)));
    }

    /// A whole second of 2026-01-01.
    const UNIX_SECONDS: u64 = 1_767_225_600;

    /// As `time.Now()` would store it.
    fn wall(unix_ns: u64) -> u64 {
        let seconds = (unix_ns / 1_000_000_000).cast_signed() + UNIX_ZERO - GO_WALL_ZERO;
        (1 << 63) | (seconds.cast_unsigned() << 30) | (unix_ns % 1_000_000_000)
    }

    #[test]
    fn where_a_metric_is_taken_it_is_told_when_the_call_began() {
        const SECOND: u64 = 1_000_000_000;
        let mut decoder = decoder(
            Role::Metric,
            &[(Value::StartWall, Slot::Word(0)), (Value::StartMonotonic, Slot::Word(1))],
        );
        decoder.set_clock(UNIX_SECONDS * SECOND);
        // The process began at 5 s, and at 7 s it took 100 ns from one clock to the other.
        let mut started = |wall_ns: u64, monotonic_ns: u64| {
            let record = hit(7, 0, words(&[wall(UNIX_SECONDS * SECOND + wall_ns), monotonic_ns]));
            decoder.decode(&record).expect("it is well-formed").values.started_ns
        };
        assert_eq!(started(7 * SECOND, 2 * SECOND + 100), Some(7 * SECOND));
        // It is known better as soon as it took less, and stays so.
        assert_eq!(started(8 * SECOND, 3 * SECOND), Some(8 * SECOND));
        assert_eq!(started(9 * SECOND, 4 * SECOND + 100), Some(9 * SECOND + 100));
        // The wall clock is set.
        assert_eq!(started(3_600 * SECOND, 5 * SECOND), Some(10 * SECOND));
        assert_eq!(started(0, 6 * SECOND), Some(11 * SECOND));
    }

    #[test]
    fn a_closure_that_does_not_return_into_its_function_is_run_by_a_panic() {
        let mut decoder = decoder(Role::Metric, &[(Value::ReturnAddress, Slot::Word(0))]);
        // `hit` is of process 3.
        decoder.add_plugins(3, &[], 0x40_0000);
        let mut panics =
            |address| decoder.decode(&hit(7, 0, words(&[address]))).expect("it is well-formed").values.panics;
        assert_eq!(panics(0x40_1800), Some(false));
        assert_eq!(panics(0x40_2000), Some(true));
        assert_eq!(panics(0x1800), Some(true));
    }

    #[test]
    fn a_status_is_known_by_the_label_of_the_metric() {
        let code = |read: &[u8; 8], length| code_named(u64::from_ne_bytes(*read), length);
        assert_eq!(code(b"SuccessE", 7), Some(0));
        assert_eq!(code(b"Unschedu", 13), Some(2));
        assert_eq!(code(b"Unschedu", 28), Some(3));
        assert_eq!(code(b"WaitSkip", 4), Some(4));
        assert_eq!(code(b"SkipWait", 4), Some(5));
        assert_eq!(code(b"PendingS", 7), Some(6));
        assert_eq!(code(b"SuccessE", 8), None);
        assert_eq!(code(&[0; 8], 0), None);
    }

    #[test]
    fn a_go_time_is_read_in_unix_nanoseconds() {
        let unix = UNIX_SECONDS * 1_000_000_000 + 5;
        assert_eq!(unix_ns(wall(unix)), Some(unix));
        assert_eq!(unix_ns(5), None);
    }
}
