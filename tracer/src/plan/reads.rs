//! What to read at a site: from parameters and results through fields, by the layouts that the executable tells.

use goexe::{Kind, Location, Path, Type};
use wire::{
    LAYOUT_LEN, LONG_TEXT, MAP_WALK, MAX_GROUP, MAX_PER_CHUNK, MAX_STEPS, MAX_TEXTS, MAX_WORDS, MapLayout,
    NO_TEXTS, PART_SIZE, READ_TEXT, READ_TEXT_IN_REGISTERS, READ_WORD, Read, STACK_POINTER, Site, TEXTS,
    TEXTS_UNLESS, TOP, TOP_CHUNK, TopLayout,
};

use super::{
    Slot,
    builder::{Builder, Why},
    follow,
    row::{SeenAs, Value, Want},
    table::{FRAMEWORK, RUNTIME},
};

/// Offset of the type in an itab.
const ITAB_TYPE: u32 = 8;
/// [`Site::unless`] for `framework.Success` and `framework.Skip`, which come without a reason
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go#L51-L78>).
/// A nil `*Status` or `error` reads as 0, and no type descriptor is at address 5.
const WITHOUT_REASON: u32 = 1 << 0 | 1 << 5;

impl<'a> Builder<'a> {
    pub(super) fn reads(
        &self,
        wants: &[Want],
        types: &[Type],
        locations: &[Location],
    ) -> Result<(Site, Vec<(Value, Slot)>), Why> {
        let mut site = Site { goid_offset: self.goid_offset, ..Site::default() };
        let mut values = Vec::with_capacity(wants.len());
        let (mut words, mut texts) = (0, 0);
        let mut list = None;
        for want in wants {
            let wanted = |(place, (typ, _)): &(usize, (&Type, &Location))| match want.seen_as {
                // Behind the context.
                SeenAs::Plugin => *place == 1,
                _ => want.of.contains(&self.name(typ)),
            };
            let receiver = match want.seen_as {
                // Go passes it first.
                SeenAs::Receiver => {
                    Some((self.types.find_unnamed(want.of[0])?, Location::Registers { first: 0, count: 1 }))
                }
                _ => None,
            };
            let listed = || {
                let mut listed = types.iter().zip(locations).enumerate().filter(wanted);
                let found = if want.seen_as == SeenAs::Last { listed.last() } else { listed.next() };
                found.map(|(_, found)| found)
            };
            let (typ, location) = receiver
                .as_ref()
                .map(|(typ, location)| (typ, location))
                .or_else(listed)
                .ok_or_else(|| Why(format!("no parameter or result of type `{}`", want.of[0])))?;
            let (mut read, leaf) = match want.seen_as {
                SeenAs::Scores => {
                    list = Some((TOP, self.scores(typ, *location)?));
                    continue;
                }
                SeenAs::Statuses => {
                    list = Some((MAP_WALK, self.statuses(typ, *location)?));
                    continue;
                }
                SeenAs::Plugin => self.plugin_type(typ, *location)?,
                SeenAs::InterfaceType => self.interface_type(typ, *location)?,
                _ => self.read(typ, *location, want)?,
            };
            let slot = if leaf == Kind::String {
                texts += 1;
                Slot::Text(texts - 1)
            } else {
                words += 1;
                Slot::Word(words - 1)
            };
            let (Slot::Word(number) | Slot::Text(number)) = slot;
            read.slot = number as u8;
            let read_number = values.len();
            values.push((want.value, slot));
            *site.reads.get_mut(read_number).ok_or_else(|| Why("more reads than a site has".into()))? = read;
        }
        if words > MAX_WORDS || texts > MAX_TEXTS {
            return Err(Why("more values than a record has".into()));
        }
        site.reads_len = values.len() as u32;
        site.texts = match values[..] {
            [(Value::Message, _)] => LONG_TEXT,
            [(Value::StatusCode | Value::ErrorType, Slot::Word(0)), ..] if texts > 0 => {
                site.unless = WITHOUT_REASON;
                TEXTS_UNLESS
            }
            _ if texts > 0 => TEXTS,
            _ => NO_TEXTS,
        };
        if let Some((kind, layout)) = list {
            (site.texts, site.layout) = (kind, layout);
        }
        Ok((site, values))
    }

    /// Where the scores of all Nodes are.
    fn scores(&self, typ: &Type, location: Location) -> Result<[u32; LAYOUT_LEN], Why> {
        let Location::Registers { first, .. } = location else {
            return Err(Why(format!("`{}` is in no register", self.name(typ))));
        };
        let node = self.types.element(typ)?;
        let offset = |field: &str| follow(self.types, &self.structs, &node, &[field]);
        let plugin = self.types.element(&offset("Scores")?.typ)?;
        let (name, score) = (
            follow(self.types, &self.structs, &plugin, &["Name"])?.offset,
            follow(self.types, &self.structs, &plugin, &["Score"])?.offset,
        );
        if (plugin.size, name, score) != (PART_SIZE as u64, 0, 16) {
            return Err(Why(format!("`{}` is another struct than it was", self.name(&plugin))));
        }
        let stride = u32::try_from(node.size).unwrap_or_default();
        let per_chunk = (TOP_CHUNK as u32).checked_div(stride).unwrap_or_default();
        if per_chunk == 0 || per_chunk as usize > MAX_PER_CHUNK {
            return Err(Why(format!("`{}` has {stride} bytes", self.name(&node))));
        }
        Ok(TopLayout {
            base: first.into(),
            stride,
            key: offset("TotalScore")?.offset as u32,
            label: offset("Name")?.offset as u32,
            parts: offset("Scores")?.offset as u32,
            per_chunk,
        }
        .into())
    }

    /// Where the statuses of Nodes are.
    fn statuses(&self, typ: &Type, location: Location) -> Result<[u32; LAYOUT_LEN], Why> {
        let Location::Registers { first, .. } = location else {
            return Err(Why(format!("`{}` is in no register", self.name(typ))));
        };
        let within_struct = typ.kind == Kind::Interface;
        let map = if within_struct {
            let holder = self.types.find(FRAMEWORK, "NodeToStatus")?;
            let map = follow(self.types, &self.structs, &holder, &["nodeToStatus"])?;
            let absent = follow(self.types, &self.structs, &holder, &["absentNodesStatus"])?;
            if (map.offset, absent.offset) != (0, 8) {
                return Err(Why("`NodeToStatus` is another struct than it was".into()));
            }
            map.typ
        } else {
            *typ
        };
        let group = self.types.map_group(&map)?;
        let field = |name: &str| self.types.path(&group, &[name]);
        let (swiss, values, stride) = match field("slots") {
            Ok(slots) => {
                let slot = self.types.element(&slots.typ)?;
                (true, slots.offset + self.types.path(&slot, &["elem"])?.offset, slot.size)
            }
            Err(_) => {
                let elements = field("elems")?;
                (false, elements.offset, self.types.element(&elements.typ)?.size)
            }
        };
        if group.size > MAX_GROUP as u64 {
            return Err(Why(format!("a group of `{}` has {} bytes", self.name(&map), group.size)));
        }
        let status = self.types.element(&self.types.element(&map)?)?;
        let offset = |field: &str| follow(self.types, &self.structs, &status, &[field]);
        Ok(MapLayout {
            base: u32::from(first) + u32::from(within_struct),
            has_holder: within_struct.into(),
            swiss: swiss.into(),
            group: group.size as u32,
            values: values as u32,
            stride: stride as u32,
            first: offset("code")?.offset as u32,
            second: offset("plugin")?.offset as u32,
        }
        .into())
    }

    /// One read: from the parameter or result through the fields.
    fn read(&self, typ: &Type, location: Location, want: &Want) -> Result<(Read, Kind), Why> {
        let mut steps: Vec<u64> = Vec::new();
        let base = match location {
            // The program keeps the stack pointer in this place.
            Location::Registers { first, count } if first + count > STACK_POINTER => {
                return Err(Why(format!("`{}` is in a register that is not kept", self.name(typ))));
            }
            // The second word of an interface points to the value.
            Location::Registers { first, .. } if typ.kind == Kind::Interface => first + 1,
            Location::Registers { first, .. } if typ.kind == Kind::Struct => {
                return self.register_of(typ, first, want);
            }
            Location::Registers { first, .. } if typ.kind == Kind::Slice || want.path == ["#"] => {
                return self.element_or_length(typ, first, want);
            }
            Location::Registers { first, .. } => first,
            Location::Stack { offset } if typ.kind == Kind::Struct => {
                let path = follow(self.types, &self.structs, typ, want.path)?;
                // It is there itself.
                let mut read = Read { base: STACK_POINTER, kind: READ_WORD, steps: 1, ..Read::default() };
                let offset = 8 + offset + path.offset;
                read.offsets[0] = u32::try_from(offset).map_err(|_| Why(format!("{offset} bytes away")))?;
                return Ok((read, path.typ.kind));
            }
            Location::Stack { offset } => {
                // At the stack pointer itself is the return address, or a place for one.
                steps.push(8 + offset + if typ.kind == Kind::Interface { 8 } else { 0 });
                STACK_POINTER
            }
            Location::Elsewhere => {
                return Err(Why(format!("`{}` is in no integer register", self.name(typ))));
            }
        };
        let (leaf, last) = if want.path.is_empty() {
            (typ.kind, 0)
        } else {
            let path = self.path(typ, want)?;
            // The pointer itself is in the register: the first step goes from there.
            steps.extend(&path.dereferences);
            if path.typ.kind == Kind::String {
                (Kind::String, path.offset)
            } else {
                steps.push(path.offset);
                (path.typ.kind, 0)
            }
        };
        let kind = match leaf {
            Kind::String if want.path.is_empty() => READ_TEXT_IN_REGISTERS,
            Kind::String => READ_TEXT,
            _ => READ_WORD,
        };
        let too_far = || Why(format!("`{}` is more than {MAX_STEPS} pointers away", want.path.join(".")));
        let mut read = Read { base, kind, last: last as u32, steps: steps.len() as u8, ..Read::default() };
        for (place, step) in steps.iter().enumerate() {
            *read.offsets.get_mut(place).ok_or_else(too_far)? =
                u32::try_from(*step).map_err(|_| too_far())?;
        }
        Ok((read, leaf))
    }

    /// The type of a plugin: from its itab, or from that of the plugin which a wrapper holds as its first field
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/instrumented_plugins.go>).
    fn plugin_type(&self, typ: &Type, location: Location) -> Result<(Read, Kind), Why> {
        let name = self.name(typ).rsplit('.').next().unwrap_or_default();
        let wrapped = self.types.find(RUNTIME, &format!("instrumented{name}")).is_ok();
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

    /// The type of what an interface holds: from its itab, the first of its words.
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
                return Err(Why(format!("`{}` is in no integer register", self.name(typ))));
            }
        }
        Ok((read, Kind::Integer))
    }

    /// A field of a struct whose words are in registers.
    fn register_of(&self, typ: &Type, first: u8, want: &Want) -> Result<(Read, Kind), Why> {
        let path = follow(self.types, &self.structs, typ, want.path)?;
        let fields = self.types.fields(typ)?;
        let whole_words = fields.iter().all(|field| field.offset % 8 == 0 && field.typ.kind != Kind::Float);
        if !whole_words || !path.dereferences.is_empty() {
            return Err(Why(format!("`{}` is not made of words", self.name(typ))));
        }
        let base = first + (path.offset / 8) as u8;
        Ok((Read { base, kind: READ_WORD, ..Read::default() }, path.typ.kind))
    }

    /// An element of a slice, or the length of a slice, string or map, that is in registers.
    fn element_or_length(&self, typ: &Type, first: u8, want: &Want) -> Result<(Read, Kind), Why> {
        if want.path == ["#"] && matches!(typ.kind, Kind::Slice | Kind::String) {
            return Ok((Read { base: first + 1, kind: READ_WORD, ..Read::default() }, Kind::Integer));
        }
        if want.path == ["#"] && typ.kind == Kind::Map {
            // It begins with the number of entries.
            return Ok((Read { base: first, kind: READ_WORD, steps: 1, ..Read::default() }, Kind::Integer));
        }
        let element = self.types.element(typ)?;
        match want.path {
            [one] if element.kind == Kind::String => {
                let last = (index(one)? * element.size) as u32;
                Ok((Read { base: first, kind: READ_TEXT, last, ..Read::default() }, Kind::String))
            }
            _ => Err(Why(format!("nothing to read in a `{}`", self.name(typ)))),
        }
    }

    /// A path from a pointer.
    fn path(&self, pointer: &Type, want: &Want) -> Result<Path<'a>, Why> {
        let target = match want.seen_as {
            SeenAs::PointerTo(package, name) => self.types.find(package, name)?,
            _ => self.types.element(pointer)?,
        };
        let mut way = Path { dereferences: Vec::new(), offset: 0, typ: target, steps: Vec::new() };
        for part in want.path.chunk_by(|one, next| !is_special(one) && !is_special(next)) {
            if !is_special(part[0]) {
                let mut next = follow(self.types, &self.structs, &way.typ, part)?;
                if next.dereferences.is_empty() {
                    next.offset += way.offset;
                } else {
                    next.dereferences[0] += way.offset;
                }
                next.dereferences.splice(0..0, way.dereferences);
                way = next;
            } else if part[0] != "#" {
                way.dereferences.push(way.offset);
                let element = self.types.element(&way.typ)?;
                way = Path { offset: index(part[0])? * element.size, typ: element, ..way };
            } else if way.typ.kind == Kind::Map {
                // Both kinds of map that Go has had begin with the number of entries.
                way.dereferences.push(way.offset);
                way = Path { offset: 0, typ: self.types.by_name("int")?, ..way };
            } else {
                way = Path { offset: way.offset + 8, typ: self.types.by_name("int")?, ..way };
            }
        }
        Ok(way)
    }
}

/// The registers that a site's reads start from.
pub(super) fn needed(site: &Site) -> u16 {
    let reads = &site.reads[..site.reads_len as usize];
    let list = if site.texts == TOP { 0b11 << site.layout[0] } else { 0 };
    reads.iter().fold(list, |all, read| all | registers(*read))
}

/// Whether a part of a path names no field.
fn is_special(part: &str) -> bool {
    part.starts_with(['*', '#'])
}

/// Which element a part of a path stands for.
fn index(part: &str) -> Result<u64, Why> {
    match part {
        "*" => Ok(0),
        _ => part.trim_start_matches('*').parse().map_err(|_| Why(format!("`{part}` is no element"))),
    }
}

/// The registers that a read starts from, as the bits of [`Call::overwritten`].
fn registers(read: Read) -> u16 {
    let bit = |register: u8| if register < STACK_POINTER { 1 << register } else { 0 };
    bit(read.base) | if read.kind == READ_TEXT_IN_REGISTERS { bit(read.base + 1) } else { 0 }
}
