//! Builds the reads of a site: from parameters and results through fields, by the layouts in the executable.

use goexe::{Kind, Location, Path, Type};
use wire::{
    BASE_BITS, GOROUTINE, LAYOUT_LEN, LINK, LONG_TEXT, MAP_WALK, MAX_BASE_OFFSET, MAX_GROUP, MAX_PER_CHUNK,
    MAX_STEPS, MAX_TEXTS, MAX_VALUE, MAX_WORDS, MapLayout, NO_TEXTS, PART_SIZE, READ_TEXT,
    READ_TEXT_IN_REGISTERS, READ_WORD, Read, STACK_POINTER, Site, TEXTS, TEXTS_UNLESS, TOP, TOP_CHUNK,
    TopLayout,
};

use super::{
    builder::{ANY_ARGUMENTS, Builder, Why, package, type_arguments},
    layout::follow,
    row::{EntriesOf, Held, SeenAs, TopOf, Want},
    site::{Reading, Slot},
};
use crate::{
    program::Program,
    values::{Kind as ValueKind, Value as _},
};

/// Offset of the type in an itab.
const ITAB_TYPE: u32 = 8;
/// Offset of the data pointer in an interface.
const INTERFACE_DATA: u64 = 8;
/// Bytes of a string's header: address, length.
const STRING: u64 = 16;

/// Maximum parts of an argument. Ten words fill the registers.
const MAX_LEAVES: usize = 64;

/// The reads of a site.
#[derive(Clone, Debug)]
pub(super) struct Reads<V> {
    pub(super) site: Site,
    pub(super) values: Vec<(Reading<V>, Slot)>,
    /// The value that receives the list or map, if there is one.
    pub(super) list: Option<V>,
}

impl<V> Reads<V> {
    /// Adds a read that ends in a value of this kind.
    pub(super) fn push(&mut self, reading: Reading<V>, mut read: Read, leaf: Kind) -> Result<(), Why> {
        let is_text = leaf == Kind::String;
        if is_text != (read.kind != READ_WORD) {
            return Err(Why("a text would be read as a word, or a word as a text".into()));
        }
        let same = |slot: &Slot| matches!(slot, Slot::Text(_)) == is_text;
        let number = self.values.iter().filter(|(_, slot)| same(slot)).count();
        if number >= if is_text { MAX_TEXTS } else { MAX_WORDS } {
            return Err(Why("more values than a record can hold".into()));
        }
        read.slot = number as u8;
        let place = self.values.len();
        *self.site.reads.get_mut(place).ok_or_else(|| Why("more reads than a site can hold".into()))? = read;
        self.values.push((reading, if is_text { Slot::Text(number) } else { Slot::Word(number) }));
        self.site.reads_len += 1;
        Ok(())
    }
}

/// A part of an argument: a string or a word.
struct Leaf {
    /// Number of integer registers before it, if the argument is in registers.
    register: u8,
    /// Offset in memory, if the argument is on the stack.
    offset: u64,
    is_text: bool,
}

impl<'a, P: Program> Builder<'a, P> {
    pub(super) fn reads(
        &self,
        function: &str,
        wants: &[Want<P::Value>],
        types: &[Type],
        locations: &[Location],
    ) -> Result<Reads<P::Value>, Why> {
        // Go passes the receiver in the first register.
        self.reads_with(Location::Registers { first: 0, count: 1 }, function, wants, types, locations)
    }

    /// The same where the receiver is somewhere else.
    pub(super) fn reads_with(
        &self,
        receiver: Location,
        function: &str,
        wants: &[Want<P::Value>],
        types: &[Type],
        locations: &[Location],
    ) -> Result<Reads<P::Value>, Why> {
        let site = Site { goid_offset: self.goid_offset, ..Site::default() };
        let mut reads = Reads { site, values: Vec::with_capacity(wants.len()), list: None };
        let mut list = None;
        for want in wants {
            if want.seen_as == SeenAs::Goroutine {
                if let Some(read) = self.of_goroutine(want.path)? {
                    reads.push(Reading::Value(want.value), read, Kind::Integer)?;
                }
                continue;
            }
            let wanted = |(place, (typ, _)): &(usize, (&Type, &Location))| match want.seen_as {
                // The parameter after the context.
                SeenAs::Implementation { .. } => *place == 1,
                SeenAs::Strings(_) | SeenAs::Word if want.of.is_empty() => *place == 0,
                SeenAs::Declared
                | SeenAs::Receiver
                | SeenAs::Last
                | SeenAs::Failure
                | SeenAs::PointerTo(..)
                | SeenAs::MessageOf { .. }
                | SeenAs::TopOf(_)
                | SeenAs::EntriesOf(_)
                | SeenAs::Strings(_)
                | SeenAs::Word
                | SeenAs::NameOfLike(..)
                | SeenAs::Like(..)
                | SeenAs::Goroutine => want.of.contains(&self.name(typ)),
            };
            let receiver = (want.seen_as == SeenAs::Receiver)
                .then(|| self.receiver(function, want.of[0]))
                .transpose()?
                .map(|typ| (typ, receiver));
            let listed = || {
                let mut listed = types.iter().zip(locations).enumerate().filter(wanted);
                let found = if want.seen_as == SeenAs::Last { listed.last() } else { listed.next() };
                found.map(|(_, found)| found)
            };
            let (typ, location) =
                receiver.as_ref().map(|(typ, location)| (typ, location)).or_else(listed).ok_or_else(
                    || {
                        let of = want.of.first().copied().unwrap_or("any");
                        Why(format!("no parameter or result of type `{of}`"))
                    },
                )?;
            let (read, leaf) = match want.seen_as {
                SeenAs::TopOf(top) => {
                    (list, reads.list) = (Some((TOP, self.top(typ, *location, top)?)), Some(want.value));
                    continue;
                }
                SeenAs::EntriesOf(entries) => {
                    list = Some((MAP_WALK, self.entries(typ, *location, entries)?));
                    reads.list = Some(want.value);
                    continue;
                }
                SeenAs::Strings(held) => {
                    self.strings(&mut reads, want.value, typ, *location, held)?;
                    continue;
                }
                SeenAs::Word => match self.word(typ, *location)? {
                    Some(read) => (read, Kind::Integer),
                    None => continue,
                },
                SeenAs::Implementation { wrapper } => self.implementation(typ, *location, wrapper)?,
                SeenAs::Failure | SeenAs::NameOfLike(..) => self.interface_type(typ, *location)?,
                SeenAs::Declared
                | SeenAs::Receiver
                | SeenAs::Last
                | SeenAs::PointerTo(..)
                | SeenAs::MessageOf { .. }
                | SeenAs::Like(..)
                | SeenAs::Goroutine => self.read(typ, *location, want)?,
            };
            reads.push(self.reading(want, &reads), read, leaf)?;
        }
        let texts = reads.values.iter().any(|(_, slot)| matches!(slot, Slot::Text(_)));
        let quiet = if let [(Reading::Value(value) | Reading::Failure(value), Slot::Word(0)), ..] =
            &reads.values[..]
        {
            P::QUIET.iter().find(|(first, _)| first == value)
        } else {
            None
        };
        (reads.site.texts, reads.site.unless) = match (&reads.values[..], quiet) {
            ([(Reading::Value(value), _)], _) if value.kind() == ValueKind::LongText => (LONG_TEXT, 0),
            (_, Some((_, numbers))) if texts => {
                (TEXTS_UNLESS, numbers.iter().fold(0, |mask, number| mask | 1 << number))
            }
            _ if texts => (TEXTS, 0),
            _ => (NO_TEXTS, 0),
        };
        if let Some((kind, layout)) = list {
            (reads.site.texts, reads.site.layout) = (kind, layout);
        }
        Ok(reads)
    }

    /// The type of a function's receiver: the one of this name in the function's package.
    fn receiver(&self, function: &str, of: &str) -> Result<Type, Why> {
        let arguments = type_arguments(function).map(|arguments| format!("[{arguments}]"));
        let of = of.replace(ANY_ARGUMENTS, &arguments.unwrap_or_default());
        let found = self.types.pointer(&of, package(function).unwrap_or_default())?;
        found.ok_or_else(|| Why(format!("no type `{of}` in the package of `{function}`")))
    }

    /// The interpretation of a wanted read.
    fn reading(&self, want: &Want<P::Value>, before: &Reads<P::Value>) -> Reading<P::Value> {
        let value = want.value;
        match want.seen_as {
            SeenAs::Failure => Reading::Failure(value),
            SeenAs::MessageOf { types, .. } => Reading::MessageOf(value, types),
            SeenAs::NameOfLike(..) => Reading::NameOfLike(value),
            SeenAs::Like(..) => Reading::Like(value),
            SeenAs::Declared
            | SeenAs::Implementation { .. }
            | SeenAs::Receiver
            | SeenAs::Last
            | SeenAs::PointerTo(..)
            | SeenAs::TopOf(_)
            | SeenAs::EntriesOf(_)
            | SeenAs::Strings(_)
            | SeenAs::Word
            | SeenAs::Goroutine => match value.kind() {
                ValueKind::Texts => {
                    let own = |(reading, _): &&(Reading<P::Value>, Slot)| matches!(reading, Reading::TextAt(of, _) if *of == value);
                    Reading::TextAt(value, before.values.iter().filter(own).count() as u8)
                }
                ValueKind::Number
                | ValueKind::Signed
                | ValueKind::Flag
                | ValueKind::Time
                | ValueKind::Text
                | ValueKind::LongText
                | ValueKind::Name
                | ValueKind::Top
                | ValueKind::Entries => Reading::Value(value),
            },
        }
    }

    /// Reads of a call's start: the two words of the `time.Time` that is the only parameter.
    pub(super) fn start_of(
        &self,
        parameters: &[Type],
        locations: &[Location],
    ) -> Result<Reads<P::Value>, Why> {
        let site = Site { goid_offset: self.goid_offset, texts: NO_TEXTS, ..Site::default() };
        let mut reads = Reads { site, values: Vec::new(), list: None };
        let (Some(typ), Some(location)) = (parameters.first(), locations.first()) else {
            return Err(Why("no `time.Time` with the start of the call".into()));
        };
        self.add_start(&mut reads, typ, *location)?;
        Ok(reads)
    }

    /// Reads a word of the current goroutine's `runtime.g`.
    fn of_goroutine(&self, fields: &[&str]) -> Result<Option<Read>, Why> {
        let g = self.types.find("runtime", "g")?;
        let Ok(path) = follow(self.types, &self.structs, &g, fields) else { return Ok(None) };
        let mut read = Read { base: GOROUTINE, kind: READ_WORD, steps: 1, ..Read::default() };
        let offset = u32::try_from(path.offset).ok().filter(|_| path.dereferences.is_empty());
        Ok(offset.map(|offset| {
            read.offsets[0] = offset;
            read
        }))
    }

    /// Layout of a slice for [`TOP`].
    fn top(&self, typ: &Type, location: Location, of: TopOf) -> Result<[u32; LAYOUT_LEN], Why> {
        let TopOf { key, label, parts: (parts, part, value) } = of;
        let Location::Registers { first, .. } = location else {
            return Err(Why(format!("`{}` is not in a register", self.name(typ))));
        };
        let element = self.types.element(typ)?;
        let offset = |field: &str| follow(self.types, &self.structs, &element, &[field]);
        let named = self.types.element(&offset(parts)?.typ)?;
        let (name_offset, value_offset) = (
            follow(self.types, &self.structs, &named, &[part])?.offset,
            follow(self.types, &self.structs, &named, &[value])?.offset,
        );
        if (named.size, name_offset, value_offset) != (PART_SIZE as u64, 0, 16) {
            return Err(Why(format!("`{}` is not a name and a number of 24 bytes", self.name(&named))));
        }
        let stride = u32::try_from(element.size).unwrap_or_default();
        let per_chunk = (TOP_CHUNK as u32).checked_div(stride).unwrap_or_default();
        if per_chunk == 0 || per_chunk as usize > MAX_PER_CHUNK {
            return Err(Why(format!("`{}` has {stride} bytes", self.name(&element))));
        }
        Ok(TopLayout {
            base: first.into(),
            stride,
            key: offset(key)?.offset as u32,
            label: offset(label)?.offset as u32,
            parts: offset(parts)?.offset as u32,
            per_chunk,
        }
        .into())
    }

    /// Layout of a map for [`MAP_WALK`].
    fn entries(&self, typ: &Type, location: Location, of: EntriesOf) -> Result<[u32; LAYOUT_LEN], Why> {
        let EntriesOf { holder: (package, holder, map, absent), fields: (number, text, texts) } = of;
        // The second word of an interface points to the value.
        let word = u32::from(typ.kind == Kind::Interface);
        let base = match location {
            Location::Registers { first, .. } => u32::from(first) + word,
            Location::Stack { offset } => {
                let offset = on_stack(offset + INTERFACE_DATA * u64::from(word))?;
                if offset > MAX_BASE_OFFSET {
                    return Err(Why(format!("`{}` is {offset} bytes away", self.name(typ))));
                }
                u32::from(STACK_POINTER) | offset << BASE_BITS
            }
            Location::Elsewhere => {
                return Err(Why(format!("`{}` is not in an integer register", self.name(typ))));
            }
        };
        let has_holder = matches!(typ.kind, Kind::Interface | Kind::Pointer);
        let map = if has_holder {
            let typ = self.types.find(package, holder)?;
            let map = follow(self.types, &self.structs, &typ, &[map])?;
            let absent = follow(self.types, &self.structs, &typ, &[absent])?;
            if (map.offset, absent.offset) != (0, 8) {
                return Err(Why(format!("`{holder}` does not begin with the map")));
            }
            map.typ
        } else {
            *typ
        };
        let group = self.types.map_group(&map)?;
        let field = |name: &str| self.types.path(&group, &[name]);
        let (swiss, keys, values) = match field("slots") {
            Ok(slots) => {
                let slot = self.types.element(&slots.typ)?;
                let of_slot =
                    |name: &str| Ok::<_, Why>(slots.offset + self.types.path(&slot, &[name])?.offset);
                (true, (of_slot("key")?, slot.size), (of_slot("elem")?, slot.size))
            }
            Err(_) => {
                let in_turn = |name: &str| {
                    let list = field(name)?;
                    Ok::<_, Why>((list.offset, self.types.element(&list.typ)?.size))
                };
                (false, in_turn("keys")?, in_turn("elems")?)
            }
        };
        if group.size > MAX_GROUP as u64 {
            return Err(Why(format!("a group of `{}` has {} bytes", self.name(&map), group.size)));
        }
        let value = self.types.element(&self.types.element(&map)?)?;
        if value.size > MAX_VALUE as u64 {
            return Err(Why(format!("`{}` has {} bytes", self.name(&value), value.size)));
        }
        let offset = |field: &str| follow(self.types, &self.structs, &value, &[field]);
        Ok(MapLayout {
            base,
            has_holder: has_holder.into(),
            swiss: swiss.into(),
            group: group.size as u32,
            values: values.0 as u32,
            stride: values.1 as u32,
            keys: keys.0 as u32,
            key_stride: keys.1 as u32,
            size: value.size as u32,
            first: offset(number)?.offset as u32,
            second: offset(text)?.offset as u32,
            texts: offset(texts)?.offset as u32,
        }
        .into())
    }

    /// A read from the parameter or result through the fields.
    fn read(&self, typ: &Type, location: Location, want: &Want<P::Value>) -> Result<(Read, Kind), Why> {
        self.read_path(typ, location, want.seen_as, want.path)
    }

    pub(super) fn read_path(
        &self,
        typ: &Type,
        location: Location,
        seen_as: SeenAs,
        fields: &[&str],
    ) -> Result<(Read, Kind), Why> {
        let mut steps: Vec<u64> = Vec::new();
        let base = match location {
            // The eBPF program uses the slots from here on for the return address, the goroutine and the stack pointer.
            Location::Registers { first, count } if first + count > LINK => {
                return Err(Why(format!("`{}` is in a register that is not saved", self.name(typ))));
            }
            // The second word of an interface points to the value.
            Location::Registers { first, .. } if typ.kind == Kind::Interface => first + 1,
            Location::Registers { first, .. } if typ.kind == Kind::Struct => {
                return self.register_of(typ, first, fields);
            }
            Location::Registers { first, .. } if typ.kind == Kind::Slice || fields == ["#"] => {
                return self.element_or_length(typ, first, fields);
            }
            Location::Registers { first, .. } => first,
            Location::Stack { offset } if typ.kind == Kind::Struct => {
                let path = follow(self.types, &self.structs, typ, fields)?;
                // The struct itself is on the stack.
                if !path.dereferences.is_empty() {
                    return Err(Why(format!("`{}` is not in the struct itself", fields.join("."))));
                }
                let place = on_stack(offset.saturating_add(path.offset))?;
                if self.is_text(&path.typ) {
                    let read = Read { base: STACK_POINTER, kind: READ_TEXT, last: place, ..Read::default() };
                    return Ok((read, Kind::String));
                }
                let mut read = Read { base: STACK_POINTER, kind: READ_WORD, steps: 1, ..Read::default() };
                read.offsets[0] = place;
                return Ok((read, path.typ.kind));
            }
            Location::Stack { offset } => {
                // The stack pointer points to the return address, or to a slot for one.
                steps.push(8 + offset + if typ.kind == Kind::Interface { 8 } else { 0 });
                STACK_POINTER
            }
            Location::Elsewhere => {
                return Err(Why(format!("`{}` is not in an integer register", self.name(typ))));
            }
        };
        let (leaf, last) = if fields.is_empty() {
            (typ.kind, 0)
        } else {
            let path = self.path(typ, seen_as, fields)?;
            // The register holds the pointer itself: the first step starts there.
            steps.extend(&path.dereferences);
            if self.is_text(&path.typ) {
                (Kind::String, path.offset)
            } else {
                steps.push(path.offset);
                (path.typ.kind, 0)
            }
        };
        let kind = match leaf {
            Kind::String if fields.is_empty() => READ_TEXT_IN_REGISTERS,
            Kind::String => READ_TEXT,
            _ => READ_WORD,
        };
        let too_far = || Why(format!("`{}` is more than {MAX_STEPS} pointers away", fields.join(".")));
        let mut read = Read { base, kind, last: last as u32, steps: steps.len() as u8, ..Read::default() };
        for (place, step) in steps.iter().enumerate() {
            *read.offsets.get_mut(place).ok_or_else(too_far)? =
                u32::try_from(*step).map_err(|_| too_far())?;
        }
        Ok((read, leaf))
    }

    /// Whether a value is text: a string, or bytes, whose header begins as that of a string does.
    fn is_text(&self, typ: &Type) -> bool {
        let is_byte = |element: Type| element.kind == Kind::Integer && element.size == 1;
        typ.kind == Kind::String || typ.kind == Kind::Slice && self.types.element(typ).is_ok_and(is_byte)
    }

    /// Reads the type of an implementation: from its itab or, for a wrapper, from the itab in the wrapper's first
    /// field, as in
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/instrumented_plugins.go>.
    fn implementation(
        &self,
        typ: &Type,
        location: Location,
        (package, prefix): (&str, &str),
    ) -> Result<(Read, Kind), Why> {
        let name = self.name(typ).rsplit('.').next().unwrap_or_default();
        let wrapped = self.types.find(package, &format!("{prefix}{name}")).is_ok();
        let (mut read, kind) = self.interface_type(typ, location)?;
        if wrapped {
            // The pointer to the wrapper is the interface's second word.
            if let Location::Stack { .. } = location {
                let data = read.offsets[0] + 8;
                read.offsets[..3].copy_from_slice(&[data, 0, ITAB_TYPE]);
            } else {
                read.base += 1;
                read.offsets[..2].copy_from_slice(&[0, ITAB_TYPE]);
            }
            read.steps += 1;
        }
        Ok((read, kind))
    }

    /// Reads the type of what an interface holds, from its itab, the first word.
    fn interface_type(&self, typ: &Type, location: Location) -> Result<(Read, Kind), Why> {
        let mut read = Read { kind: READ_WORD, ..Read::default() };
        match location {
            Location::Registers { first, .. } => {
                (read.base, read.steps, read.offsets[0]) = (first, 1, ITAB_TYPE);
            }
            Location::Stack { offset } => {
                let offset = u32::try_from(8 + offset).map_err(|_| Why(format!("{offset} bytes away")))?;
                (read.base, read.steps) = (STACK_POINTER, 2);
                read.offsets[..2].copy_from_slice(&[offset, ITAB_TYPE]);
            }
            Location::Elsewhere => {
                return Err(Why(format!("`{}` is not in an integer register", self.name(typ))));
            }
        }
        Ok((read, Kind::Integer))
    }

    /// Reads all strings of an argument. For an interface, also its type, which decides whether they are strings.
    fn strings(
        &self,
        reads: &mut Reads<P::Value>,
        value: P::Value,
        typ: &Type,
        location: Location,
        held: &'static [Held],
    ) -> Result<(), Why> {
        let texts = reads.values.iter().filter(|(_, slot)| matches!(slot, Slot::Text(_))).count();
        let place = |place: usize| Reading::TextAt(value, u8::try_from(place).unwrap_or(u8::MAX));
        if typ.kind != Kind::Interface {
            let strings: Vec<_> = self.leaves(typ)?.into_iter().filter(|leaf| leaf.is_text).collect();
            if strings.len() > MAX_TEXTS - texts {
                return Err(Why(format!("`{}` has {} strings", self.name(typ), strings.len())));
            }
            for (index, leaf) in strings.into_iter().enumerate() {
                let read = match location {
                    Location::Registers { first, .. } => {
                        let base = register(first + leaf.register + 1)? - 1;
                        Read { base, kind: READ_TEXT_IN_REGISTERS, ..Read::default() }
                    }
                    Location::Stack { offset } => {
                        let last = on_stack(offset + leaf.offset)?;
                        Read { base: STACK_POINTER, kind: READ_TEXT, last, ..Read::default() }
                    }
                    Location::Elsewhere => return Ok(()),
                };
                reads.push(place(index), read, Kind::String)?;
            }
            return Ok(());
        }
        // The type, and the address of what it holds.
        let [holder, held_by] = match location {
            Location::Registers { first, .. } => {
                [first, register(first + 1)?].map(|base| Read { base, ..Read::default() })
            }
            Location::Stack { offset } => {
                let on_stack = |offset| {
                    let mut read = Read { base: STACK_POINTER, steps: 1, ..Read::default() };
                    read.offsets[0] = on_stack(offset)?;
                    Ok::<_, Why>(read)
                };
                [on_stack(offset)?, on_stack(offset + INTERFACE_DATA)?]
            }
            Location::Elsewhere => {
                return Err(Why(format!("`{}` is not in an integer register", self.name(typ))));
            }
        };
        let mut most = 0;
        for Held(name, count) in held {
            // A type without a descriptor is never in an interface.
            let Ok(typ) = self.types.by_name(name) else { continue };
            let strings = self.leaves(&typ)?.iter().filter(|leaf| leaf.is_text).count();
            if (strings, typ.size) != (usize::from(*count), u64::from(*count) * STRING) {
                return Err(Why(format!("`{name}` is not {count} strings")));
            }
            most = most.max(*count);
        }
        reads.push(Reading::Holds(value, held), Read { kind: READ_WORD, ..holder }, Kind::Integer)?;
        for index in 0..usize::from(most) {
            let last = (index as u64 * STRING) as u32;
            reads.push(place(index), Read { kind: READ_TEXT, last, ..held_by }, Kind::String)?;
        }
        Ok(())
    }

    /// Reads the first word of an argument that is not part of a string.
    fn word(&self, typ: &Type, location: Location) -> Result<Option<Read>, Why> {
        let leaf = match typ.kind {
            Kind::Interface => Some(Leaf { register: 1, offset: INTERFACE_DATA, is_text: false }),
            _ => self.leaves(typ)?.into_iter().find(|leaf| !leaf.is_text),
        };
        let Some(leaf) = leaf else { return Ok(None) };
        let mut read = Read { kind: READ_WORD, ..Read::default() };
        match location {
            Location::Registers { first, .. } => read.base = register(first + leaf.register)?,
            Location::Stack { offset } => {
                (read.base, read.steps) = (STACK_POINTER, 1);
                read.offsets[0] = on_stack(offset + leaf.offset)?;
            }
            Location::Elsewhere => return Ok(None),
        }
        Ok(Some(read))
    }

    /// The strings and words of an argument. Other parts only count as registers.
    fn leaves(&self, typ: &Type) -> Result<Vec<Leaf>, Why> {
        let (mut leaves, mut register) = (Vec::new(), 0);
        self.add_leaves(typ, 0, &mut register, &mut leaves)?;
        Ok(leaves)
    }

    fn add_leaves(
        &self,
        typ: &Type,
        offset: u64,
        register: &mut u8,
        leaves: &mut Vec<Leaf>,
    ) -> Result<(), Why> {
        let (registers, is_text) = match typ.kind {
            Kind::Struct => {
                for field in self.types.fields(typ)? {
                    if leaves.len() >= MAX_LEAVES {
                        return Err(Why(format!("`{}` has too many fields", self.name(typ))));
                    }
                    self.add_leaves(&field.typ, offset.saturating_add(field.offset), register, leaves)?;
                }
                return Ok(());
            }
            Kind::String => (2, Some(true)),
            Kind::Integer | Kind::Pointer | Kind::UnsafePointer | Kind::Chan | Kind::Func | Kind::Map => {
                // A shorter value on the stack shares its word with others.
                (1, (typ.size == 8).then_some(false))
            }
            Kind::Bool => (1, None),
            Kind::Interface => (2, None),
            Kind::Slice => (3, None),
            Kind::Float | Kind::Complex => (0, None),
            Kind::Array => return Err(Why(format!("`{}` is an array", self.name(typ)))),
        };
        leaves.extend(is_text.map(|is_text| Leaf { register: *register, offset, is_text }));
        *register = register.saturating_add(registers);
        Ok(())
    }

    /// A field of a struct that is in registers.
    fn register_of(&self, typ: &Type, first: u8, fields: &[&str]) -> Result<(Read, Kind), Why> {
        let path = follow(self.types, &self.structs, typ, fields)?;
        let all = self.types.fields(typ)?;
        let whole_words = all.iter().all(|field| field.offset % 8 == 0 && field.typ.kind != Kind::Float);
        if !whole_words || !path.dereferences.is_empty() {
            return Err(Why(format!("`{}` does not consist of words", self.name(typ))));
        }
        let base = first + (path.offset / 8) as u8;
        if self.is_text(&path.typ) {
            return Ok((Read { base, kind: READ_TEXT_IN_REGISTERS, ..Read::default() }, Kind::String));
        }
        Ok((Read { base, kind: READ_WORD, ..Read::default() }, path.typ.kind))
    }

    /// An element of a slice, or the length of a slice, string or map, when its header is in registers.
    fn element_or_length(&self, typ: &Type, first: u8, fields: &[&str]) -> Result<(Read, Kind), Why> {
        if fields == ["#"] && matches!(typ.kind, Kind::Slice | Kind::String) {
            return Ok((Read { base: first + 1, kind: READ_WORD, ..Read::default() }, Kind::Integer));
        }
        if fields == ["#"] && typ.kind == Kind::Map {
            // A map begins with the number of entries.
            return Ok((Read { base: first, kind: READ_WORD, steps: 1, ..Read::default() }, Kind::Integer));
        }
        let element = self.types.element(typ)?;
        match fields {
            [one] if element.kind == Kind::String => {
                let last = (index(one)? * element.size) as u32;
                Ok((Read { base: first, kind: READ_TEXT, last, ..Read::default() }, Kind::String))
            }
            _ => Err(Why(format!("cannot read a `{}`", self.name(typ)))),
        }
    }

    /// The offsets on a path that starts at a pointer.
    fn path(&self, pointer: &Type, seen_as: SeenAs, fields: &[&str]) -> Result<Path<'a>, Why> {
        let target = match seen_as {
            SeenAs::PointerTo(package, name)
            | SeenAs::Like(package, name)
            | SeenAs::MessageOf { of: (package, name), .. } => self.types.find(package, name)?,
            SeenAs::Declared
            | SeenAs::Implementation { .. }
            | SeenAs::Receiver
            | SeenAs::Last
            | SeenAs::Failure
            | SeenAs::TopOf(_)
            | SeenAs::EntriesOf(_)
            | SeenAs::Strings(_)
            | SeenAs::Word
            | SeenAs::NameOfLike(..)
            | SeenAs::Goroutine => self.types.element(pointer)?,
        };
        let mut way = Path { dereferences: Vec::new(), offset: 0, typ: target, steps: Vec::new() };
        for part in fields.chunk_by(|one, next| !is_special(one) && !is_special(next)) {
            if !is_special(part[0]) {
                let mut next = follow(self.types, &self.structs, &way.typ, part)?;
                if next.dereferences.is_empty() {
                    next.offset += way.offset;
                } else {
                    next.dereferences[0] += way.offset;
                }
                next.dereferences.splice(0..0, way.dereferences);
                way = next;
            } else if let Some(held) = part[0].strip_prefix('(').and_then(|part| part.strip_suffix(')')) {
                if way.typ.kind != Kind::Interface {
                    return Err(Why(format!("`{}` is not an interface", self.name(&way.typ))));
                }
                way.dereferences.push(way.offset + INTERFACE_DATA);
                way = Path { offset: 0, typ: self.types.by_name(held)?, ..way };
            } else if part[0] != "#" {
                way.dereferences.push(way.offset);
                let element = self.types.element(&way.typ)?;
                way = Path { offset: index(part[0])? * element.size, typ: element, ..way };
            } else if way.typ.kind == Kind::Map {
                // Both of Go's map types begin with the number of entries.
                way.dereferences.push(way.offset);
                way = Path { offset: 0, typ: self.types.by_name("int")?, ..way };
            } else {
                way = Path { offset: way.offset + 8, typ: self.types.by_name("int")?, ..way };
            }
        }
        Ok(way)
    }
}

/// The registers that a site's reads start from, one bit each.
pub(super) fn needed(site: &Site) -> u16 {
    let reads = &site.reads[..site.reads_len as usize];
    let list = if site.texts == TOP { 0b11 << site.layout[0] } else { 0 };
    reads.iter().fold(list, |all, read| all | registers(*read))
}

/// A register number, if the eBPF program saves that register.
fn register(number: u8) -> Result<u8, Why> {
    if number < LINK { Ok(number) } else { Err(Why(format!("register {number} is not saved"))) }
}

/// Offset from the stack pointer at a function's entry of an offset in the argument area. The stack pointer points to
/// the return address, or to a slot for one.
fn on_stack(offset: u64) -> Result<u32, Why> {
    u32::try_from(offset.saturating_add(8)).map_err(|_| Why(format!("{offset} bytes away")))
}

/// Whether a part of a path is not a field's name.
fn is_special(part: &str) -> bool {
    part.starts_with(['*', '#', '('])
}

/// The index of the element that a part of a path selects.
fn index(part: &str) -> Result<u64, Why> {
    match part {
        "*" => Ok(0),
        _ => part.trim_start_matches('*').parse().map_err(|_| Why(format!("`{part}` is not an element"))),
    }
}

/// The registers that a read starts from, as bits like [`Call::overwritten`].
fn registers(read: Read) -> u16 {
    let bit = |register: u8| if register < LINK { 1 << register } else { 0 };
    bit(read.base) | if read.kind == READ_TEXT_IN_REGISTERS { bit(read.base + 1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_one_that_the_program_saves() {
        assert_eq!(register(LINK - 1).ok(), Some(LINK - 1));
        let Err(Why(why)) = register(LINK) else { panic!("it is the place of the return address") };
        assert_eq!(why, format!("register {LINK} is not saved"));
    }

    #[test]
    fn the_stack_begins_behind_the_return_address() {
        assert_eq!(on_stack(0).ok(), Some(8));
        assert_eq!(on_stack(u64::from(u32::MAX) - 8).ok(), Some(u32::MAX));
        assert!(on_stack(u64::from(u32::MAX) - 7).is_err());
        assert!(on_stack(u64::MAX).is_err());
    }

    #[test]
    fn a_part_of_a_path_may_select_an_element() {
        assert_eq!(["*", "*1", "*12"].map(|part| index(part).ok()), [Some(0), Some(1), Some(12)]);
        assert!(index("*x").is_err());
        assert!(["*", "*1", "#", "(a.B)"].into_iter().all(is_special) && !is_special("name"));
    }

    #[test]
    fn a_site_needs_the_registers_that_its_reads_start_from() {
        let mut site = Site { reads_len: 3, ..Site::default() };
        site.reads[0] = Read { base: 1, kind: READ_WORD, ..Read::default() };
        site.reads[1] = Read { base: 3, kind: READ_TEXT_IN_REGISTERS, ..Read::default() };
        site.reads[2] = Read { base: STACK_POINTER, kind: READ_TEXT, ..Read::default() };
        // Not one of its reads.
        site.reads[3] = Read { base: 7, kind: READ_WORD, ..Read::default() };
        assert_eq!(needed(&site), 0b1_1010);
        (site.texts, site.layout[0]) = (TOP, 5);
        assert_eq!(needed(&site), 0b111_1010);
        site.texts = MAP_WALK;
        assert_eq!(needed(&site), 0b1_1010);
    }

    #[test]
    fn a_record_has_room_for_so_many_values() {
        let mut reads = Reads { site: Site::default(), values: Vec::new(), list: None };
        let mut push = |leaf| {
            let before = reads.values.len();
            let kind = if leaf == Kind::String { READ_TEXT } else { READ_WORD };
            let pushed = reads.push(Reading::Value(()), Read { kind, ..Read::default() }, leaf).is_ok();
            assert_eq!(reads.values.len(), before + usize::from(pushed));
            assert_eq!(reads.site.reads_len as usize, reads.values.len());
            pushed.then(|| (reads.values[before].1, reads.site.reads[before].slot))
        };
        assert_eq!(push(Kind::Integer), Some((Slot::Word(0), 0)));
        for text in 0..MAX_TEXTS {
            assert_eq!(push(Kind::String), Some((Slot::Text(text), text as u8)));
        }
        assert_eq!(push(Kind::String), None);
        assert_eq!(push(Kind::Integer), Some((Slot::Word(1), 1)));
    }

    #[test]
    fn a_text_is_not_read_as_a_word_nor_a_word_as_a_text() {
        let mut reads = Reads { site: Site::default(), values: Vec::new(), list: None };
        for (kind, leaf) in [(READ_WORD, Kind::String), (READ_TEXT, Kind::Integer), (READ_TEXT, Kind::Slice)]
        {
            let read = Read { kind, ..Read::default() };
            assert!(reads.push(Reading::Value(()), read, leaf).is_err(), "{leaf:?}");
        }
        assert_eq!((reads.site.reads_len, reads.values.len()), (0, 0));
    }
}
