//! Runtime type descriptors: the layouts and signatures that survive stripping.
//!
//! The layout of a descriptor is that of `internal/abi.Type`
//! (<https://github.com/golang/go/blob/go1.26.5/src/internal/abi/type.go#L20-L43>).

use crate::{
    Error, Machine, bytes,
    image::Image,
    module_data::{List, ModuleData},
};

/// Size of `abi.Type`. The part of the kind follows.
const TYPE: u64 = 48;
const UNCOMMON: u64 = 16;
const FLAG_UNCOMMON: u8 = 1;
const FLAG_EXTRA_STAR: u8 = 2;
const FLAG_NAMED: u8 = 4;
const NAME_EMBEDDED: u8 = 8;
/// Maximum length of a type's string, since those of generic instantiations are long, and of a member's name.
const MAX_NAME: u32 = 1 << 14;
const MAX_MEMBER_NAME: usize = 1 << 10;
/// Size of an itab before its functions: interface, type, hash
/// (<https://github.com/golang/go/blob/go1.26.5/src/internal/abi/iface.go#L14-L19>).
const ITAB: u64 = 24;
/// Maximum number of fields, methods, parameters or results.
const MAX_MEMBERS: u64 = 1 << 14;
const MAX_PARAMETERS: u64 = 128;
/// Maximum number of types with equal strings (in different packages), and of itabs. A scheduler has 5,000 itabs.
const MAX_NAMESAKES: usize = 1 << 10;
const MAX_ITABS: usize = 1 << 18;
/// Limits of the search for a promoted field: depth of embedding, number of structs, and number of their fields.
const MAX_EMBEDDING: usize = 8;
const MAX_EMBEDDED: usize = 256;
const MAX_SEARCHED: usize = 1 << 16;

/// The kinds of `reflect.Kind` that affect layout or calling convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Go's own")]
pub enum Kind {
    Bool,
    Integer,
    Float,
    Complex,
    Array,
    Chan,
    Func,
    Interface,
    Map,
    Pointer,
    Slice,
    String,
    Struct,
    UnsafePointer,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte & 31 {
            1 => Self::Bool,
            2..=12 => Self::Integer,
            13 | 14 => Self::Float,
            15 | 16 => Self::Complex,
            17 => Self::Array,
            18 => Self::Chan,
            19 => Self::Func,
            20 => Self::Interface,
            21 => Self::Map,
            22 => Self::Pointer,
            23 => Self::Slice,
            24 => Self::String,
            25 => Self::Struct,
            26 => Self::UnsafePointer,
            _ => return None,
        })
    }
}

/// A type descriptor of the executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    address: u64,
    /// Its kind.
    pub kind: Kind,
    /// Size of a value, in bytes.
    pub size: u64,
    /// Alignment of a value, in bytes.
    pub align: u64,
    flags: u8,
    name: i32,
}

impl Type {
    /// Virtual address of the descriptor. Interface values and itabs point to it at run time, plus the load bias.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// A field of a struct type.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Field name; for an embedded field the type's name.
    pub name: &'a str,
    /// Type of the field.
    pub typ: Type,
    /// Bytes from the start of the struct.
    pub offset: u64,
    /// Whether it is embedded, so that its own fields are promoted.
    pub embedded: bool,
}

/// Parameters and results of a function type, without a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Types of the parameters, in order.
    pub parameters: Vec<Type>,
    /// Types of the results, in order.
    pub results: Vec<Type>,
}

/// A method of a named type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method<'a> {
    /// Method name.
    pub name: &'a str,
    /// Address of its code, for the receiver's own type; `None` if the linker removed it as unreachable.
    pub code: Option<u64>,
}

/// An itab: a type as an implementation of an interface. The first word of an interface value points to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Itab {
    /// Virtual address in the file.
    pub address: u64,
    /// Type of the interface.
    pub interface: Type,
    /// Type of the value in the interface, often a pointer.
    pub concrete: Type,
}

/// A field on a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The struct that contains the field.
    pub owner: Type,
    /// Field name; for an embedded field the type's name.
    pub field: &'a str,
    /// Bytes from the start of the struct.
    pub offset: u64,
}

/// Offsets from a pointer to a field, possibly through further pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// Offsets of the pointers to follow, each relative to the target of the preceding one.
    pub dereferences: Vec<u64>,
    /// Offset of the field from the target of the last pointer.
    pub offset: u64,
    /// Type of the field.
    pub typ: Type,
    /// The fields on the path, including embedded ones.
    pub steps: Vec<Step<'a>>,
}

/// The type descriptors of an executable.
#[derive(Debug)]
pub struct Types<'a> {
    image: &'a Image<'a>,
    base: u64,
    end: u64,
    text: u64,
    types: List,
    itabs: List,
}

impl<'a> Types<'a> {
    pub(crate) fn new(image: &'a Image<'a>, module: &ModuleData) -> Self {
        let ModuleData { types: base, etypes: end, text, type_list, itab_list, .. } = *module;
        Self { image, base, end, text, types: type_list, itabs: itab_list }
    }

    pub(crate) fn machine(&self) -> Machine {
        self.image.machine
    }

    /// A named type, by package path and name, if the executable refers to it by a pointer type.
    ///
    /// Strings have only the last element of the package path, so the complete path is compared separately.
    pub fn find(&self, package: &str, name: &str) -> Result<Type, Error> {
        let short = package.rsplit('/').next().unwrap_or(package);
        match self.pointer(&format!("*{short}.{name}"), package)? {
            Some(pointer) => self.element(&pointer),
            None => Err(Error::NoType(format!("`{package}.{name}`"))),
        }
    }

    /// The pointer type with this string, such as `*v1.Pod`, to a type of this package. A package's name may differ from
    /// the last element of its path.
    pub fn pointer(&self, string: &str, package: &str) -> Result<Option<Type>, Error> {
        for pointer in self.unnamed(string)? {
            if pointer.kind == Kind::Pointer && self.package(&self.element(&pointer)?)? == Some(package) {
                return Ok(Some(pointer));
            }
        }
        Ok(None)
    }

    /// A type by its full name: `string`, `context.Context`, `*k8s.io/api/core/v1.Pod`.
    ///
    /// # Errors
    ///
    /// When the executable has no descriptor of it.
    pub fn by_name(&self, name: &str) -> Result<Type, Error> {
        let (pointer, target) = match name.strip_prefix('*') {
            Some(target) => (true, target),
            None => (false, name),
        };
        // The package path may contain dots, the name does not.
        let short = target.rsplit('/').next().unwrap_or(target);
        let package = short.split_once('.').map(|(_, name)| &target[..target.len() - name.len() - 1]);
        for typ in self.unnamed(&format!("*{short}"))? {
            if typ.kind == Kind::Pointer {
                let element = self.element(&typ)?;
                // Predeclared types belong to no package.
                if package.is_none() || self.package(&element)? == package {
                    return Ok(if pointer { typ } else { element });
                }
            }
        }
        Err(Error::NoType(format!("`{name}`")))
    }

    /// An unnamed type, such as a function type, by its string.
    pub fn find_unnamed(&self, string: &str) -> Result<Type, Error> {
        self.unnamed(string)?.into_iter().next().ok_or_else(|| Error::NoType(format!("`{string}`")))
    }

    /// All unnamed types with this string.
    fn unnamed(&self, wanted: &str) -> Result<Vec<Type>, Error> {
        match self.types {
            List::Links(address, count) => self.sorted(wanted, address, count),
            List::Range(start, end) => self.side_by_side(wanted, start, end),
        }
    }

    /// Binary search, because the linker sorts them.
    /// <https://github.com/golang/go/blob/go1.26.5/src/cmd/link/internal/ld/typelink.go#L22-L50>
    fn sorted(&self, wanted: &str, address: u64, count: u64) -> Result<Vec<Type>, Error> {
        let list = self.image.part("typelinks", address, count.saturating_mul(4))?;
        let entry = |index: u64| -> Result<(&'a [u8], Type), Error> {
            let typ = self.at(self.offset(list.i32(index * 4).unwrap_or_default()))?;
            Ok((self.string_bytes(&typ)?, typ))
        };
        let wanted = wanted.as_bytes();
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if entry(middle)?.0 < wanted { low = middle + 1 } else { high = middle }
        }
        let mut found = Vec::new();
        for index in low..count {
            let (string, typ) = entry(index)?;
            if string != wanted {
                break;
            }
            push_namesake(&mut found, typ)?;
        }
        Ok(found)
    }

    /// Linear search. It must end exactly at the end of the list, which detects a descriptor of unexpected size.
    /// <https://github.com/golang/go/blob/go1.27.3/src/internal/abi/type.go#L740-L800>
    fn side_by_side(&self, wanted: &str, start: u64, end: u64) -> Result<Vec<Type>, Error> {
        let mut found = Vec::new();
        let mut address = start;
        while address < end {
            let typ = self.at(address)?;
            if self.string_bytes(&typ)? == wanted.as_bytes() {
                push_namesake(&mut found, typ)?;
            }
            address = self.after(&typ)?.next_multiple_of(8);
        }
        if address != end {
            return Err(Error::malformed("types", address, format!("the last one ends behind {end:#x}")));
        }
        Ok(found)
    }

    /// Address after a descriptor.
    fn after(&self, typ: &Type) -> Result<u64, Error> {
        const METHOD: u64 = 16;
        let members = match typ.kind {
            Kind::Struct => self.count(typ)? * 24,
            Kind::Interface => self.count(typ)? * 8,
            Kind::Func => {
                let (inputs, outputs) = self.parameter_counts(typ)?;
                (inputs + outputs) * 8
            }
            _ => 0,
        };
        let part = self.kind_part(typ.kind).ok_or_else(|| self.unknown_map(typ))?;
        let end = typ.address + TYPE + part + members;
        Ok(match self.uncommon(typ) {
            None => end,
            Some(uncommon) => {
                let data = self.image.bytes("uncommon type", uncommon, UNCOMMON)?;
                end + UNCOMMON + METHOD * u64::from(bytes::u16_at(data, 4).unwrap_or_default())
            }
        })
    }

    fn unknown_map(&self, typ: &Type) -> Error {
        Error::malformed("map type", typ.address, "the size of its descriptor differs by Go version")
    }

    /// The itabs that the compiler emitted, for conversions in the code.
    ///
    /// # Errors
    ///
    /// When the list is malformed.
    pub fn itabs(&self) -> Result<Vec<Itab>, Error> {
        let mut itabs = Vec::new();
        match self.itabs {
            List::Links(address, count) => {
                if count > MAX_ITABS as u64 {
                    return Err(Error::malformed("itablinks", address, format!("it claims {count} itabs")));
                }
                for index in 0..count {
                    itabs.push(self.itab(self.image.pointer("itablinks", address + index * 8)?)?);
                }
            }
            List::Range(start, end) => {
                let mut address = start;
                while address < end {
                    if itabs.len() == MAX_ITABS {
                        let why = format!("more than {MAX_ITABS} itabs begin before it");
                        return Err(Error::malformed("itab", address, why));
                    }
                    let itab = self.itab(address)?;
                    address += ITAB + 8 * self.count(&itab.interface)?.max(1);
                    itabs.push(itab);
                }
            }
        }
        Ok(itabs)
    }

    fn itab(&self, address: u64) -> Result<Itab, Error> {
        let word = |offset: u64| self.image.pointer("itab", address.saturating_add(offset));
        let (interface, concrete) = (self.at(word(0)?)?, self.at(word(8)?)?);
        if interface.kind != Kind::Interface {
            return Err(Error::malformed(
                "itab",
                address,
                format!("its interface is a {:?}", interface.kind),
            ));
        }
        Ok(Itab { address, interface, concrete })
    }

    /// The methods of a named type, or of a pointer to one, sorted by name.
    ///
    /// # Errors
    ///
    /// When the list is malformed.
    pub fn methods(&self, typ: &Type) -> Result<Vec<Method<'a>>, Error> {
        const METHOD: u64 = 16;
        let Some(uncommon) = self.uncommon(typ) else { return Ok(Vec::new()) };
        let data = self.image.bytes("uncommon type", uncommon, UNCOMMON)?;
        let count = u64::from(bytes::u16_at(data, 4).unwrap_or_default());
        let place = u64::from(bytes::u32_at(data, 8).unwrap_or_default());
        if count > MAX_MEMBERS {
            return Err(Error::malformed("uncommon type", uncommon, format!("it claims {count} methods")));
        }
        let list = self.image.read("methods", uncommon.saturating_add(place), count * METHOD)?;
        list.chunks_exact(METHOD as usize)
            .map(|method| {
                let offset = |at| bytes::i32_at(method, at).unwrap_or_default();
                let (name, _) = self.member_name(self.offset(offset(0)))?;
                // 0 and -1 stand for an unreachable method.
                let code = u32::try_from(offset(12)).ok().filter(|code| *code != 0);
                Ok(Method { name, code: code.map(|code| self.text.saturating_add(code.into())) })
            })
            .collect()
    }

    /// The type's string, such as `*v1.Pod`, with the last element of the package path only.
    pub fn string(&self, typ: &Type) -> Result<&'a str, Error> {
        str::from_utf8(self.string_bytes(typ)?)
            .map_err(|_| Error::malformed("type name", self.offset(typ.name), "it is not UTF-8"))
    }

    /// Bytes of [`Types::string`], not validated, for comparisons.
    fn string_bytes(&self, typ: &Type) -> Result<&'a [u8], Error> {
        let (name, _) = self.name_bytes(self.offset(typ.name))?;
        Ok(if typ.flags & FLAG_EXTRA_STAR != 0 { name.strip_prefix(b"*").unwrap_or(name) } else { name })
    }

    /// Path of the package that declares a named type.
    pub fn package(&self, typ: &Type) -> Result<Option<&'a str>, Error> {
        if typ.flags & FLAG_NAMED == 0 {
            return Ok(None);
        }
        let Some(uncommon) = self.uncommon(typ) else { return Ok(None) };
        let data = self.image.bytes("uncommon type", uncommon, 4)?;
        match bytes::i32_at(data, 0) {
            None | Some(0) => Ok(None),
            Some(offset) => Ok(Some(self.name(self.offset(offset))?.0)),
        }
    }

    /// Element type of a pointer, slice, array, channel or map.
    pub fn element(&self, typ: &Type) -> Result<Type, Error> {
        let offset = match typ.kind {
            Kind::Pointer | Kind::Slice | Kind::Array | Kind::Chan => TYPE,
            Kind::Map => TYPE + 8,
            _ => {
                return Err(Error::malformed(
                    "type",
                    typ.address,
                    format!("a {:?} has no element", typ.kind),
                ));
            }
        };
        self.at(self.image.pointer("element type", typ.address + offset)?)
    }

    /// Type of a map's groups of eight entries: from Go 1.24 on a struct of `ctrl` and `slots`, before that a bucket of
    /// `topbits`, `keys` and `elems`. <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/map.go#L20-L35>
    /// <https://github.com/golang/go/blob/go1.23.4/src/internal/abi/type.go#L392-L406>
    pub fn map_group(&self, typ: &Type) -> Result<Type, Error> {
        if typ.kind != Kind::Map {
            return Err(Error::malformed("type", typ.address, format!("a {:?} has no groups", typ.kind)));
        }
        self.at(self.image.pointer("group type of a map", typ.address + TYPE + 16)?)
    }

    /// Number of elements of an array type.
    pub fn array_len(&self, typ: &Type) -> Result<u64, Error> {
        self.image.u64("array length", typ.address + TYPE + 16)
    }

    /// The fields of a struct type, in order.
    pub fn fields(&self, typ: &Type) -> Result<Vec<Field<'a>>, Error> {
        self.each_field(typ)?.collect()
    }

    /// The fields of a struct type, read lazily.
    pub(crate) fn each_field(
        &self,
        typ: &Type,
    ) -> Result<impl Iterator<Item = Result<Field<'a>, Error>>, Error> {
        const FIELD: u64 = 24;
        const WHAT: &str = "struct fields";
        let (fields, count) = self.slice(typ, Kind::Struct, TYPE + 8)?;
        self.image.part(WHAT, fields, count * FIELD)?;
        Ok((0..count).map(move |index| {
            let field = fields + index * FIELD;
            let (name, flags) = self.member_name(self.image.pointer(WHAT, field)?)?;
            let typ = self.at(self.image.pointer(WHAT, field + 8)?)?;
            let offset = self.image.u64(WHAT, field + 16)?;
            Ok(Field { name, typ, offset, embedded: flags & NAME_EMBEDDED != 0 })
        }))
    }

    /// The methods of an interface type, sorted by name. The index is the slot in an itab.
    pub fn interface_methods(&self, typ: &Type) -> Result<Vec<(&'a str, Type)>, Error> {
        const METHOD: u64 = 8;
        let (methods, count) = self.slice(typ, Kind::Interface, TYPE + 8)?;
        let data = self.image.read("interface methods", methods, count * METHOD)?;
        data.chunks_exact(METHOD as usize)
            .map(|method| {
                let offset = |at| self.offset(bytes::i32_at(method, at).unwrap_or_default());
                Ok((self.member_name(offset(0))?.0, self.at(offset(4))?))
            })
            .collect()
    }

    /// Parameters and results of a function type.
    pub fn signature(&self, typ: &Type) -> Result<Signature, Error> {
        const WHAT: &str = "function type";
        if typ.kind != Kind::Func {
            return Err(Error::malformed(WHAT, typ.address, format!("it is a {:?}", typ.kind)));
        }
        let (inputs, outputs) = self.parameter_counts(typ)?;
        let uncommon = if typ.flags & FLAG_UNCOMMON != 0 { UNCOMMON } else { 0 };
        let list = typ.address + TYPE + 8 + uncommon;
        self.image.part(WHAT, list, (inputs + outputs) * 8)?;
        let typ = |index: u64| self.at(self.image.pointer(WHAT, list + index * 8)?);
        Ok(Signature {
            parameters: (0..inputs).map(typ).collect::<Result<_, _>>()?,
            results: (inputs..inputs + outputs).map(typ).collect::<Result<_, _>>()?,
        })
    }

    fn parameter_counts(&self, typ: &Type) -> Result<(u64, u64), Error> {
        let counts = self.image.bytes("function type", typ.address + TYPE, 4)?;
        let count = |at| u64::from(bytes::u16_at(counts, at).unwrap_or_default());
        // The top bit marks a variadic last parameter.
        let (inputs, outputs) = (count(0), count(2) & 0x7fff);
        if inputs.max(outputs) > MAX_PARAMETERS {
            let why = format!("it claims {inputs} parameters and {outputs} results");
            return Err(Error::malformed("function type", typ.address, why));
        }
        Ok((inputs, outputs))
    }

    /// The path from a value of struct type `from` to the field at the end of `path`, by Go's rule for promoted fields,
    /// including embedded pointers. `a|b` is a field of one of these names: some are renamed between versions.
    pub fn path(&self, from: &Type, path: &[&str]) -> Result<Path<'a>, Error> {
        let mut way = Path { dereferences: Vec::new(), offset: 0, typ: *from, steps: Vec::new() };
        for name in path {
            if way.typ.kind == Kind::Pointer {
                way.dereferences.push(way.offset);
                way.offset = 0;
                way.typ = self.element(&way.typ)?;
            }
            way = self.promoted(&way, name)?;
        }
        Ok(way)
    }

    fn promoted(&self, start: &Path<'a>, name: &str) -> Result<Path<'a>, Error> {
        let mut level = vec![start.clone()];
        let mut searched = 0;
        for _ in 0..MAX_EMBEDDING {
            let mut next = Vec::new();
            for way in level {
                let mut way = way;
                if way.typ.kind == Kind::Pointer {
                    way.dereferences.push(way.offset);
                    way.offset = 0;
                    way.typ = self.element(&way.typ)?;
                }
                if way.typ.kind != Kind::Struct {
                    continue;
                }
                for field in self.each_field(&way.typ)? {
                    let field = field?;
                    searched += 1;
                    if searched > MAX_SEARCHED {
                        let why = format!("it embeds structs of more than {MAX_SEARCHED} fields together");
                        return Err(Error::malformed("struct", start.typ.address, why));
                    }
                    let wanted = name.split('|').any(|name| field.name == name);
                    if !(wanted || field.embedded && next.len() < MAX_EMBEDDED) {
                        continue;
                    }
                    let mut there = Path {
                        offset: way.offset.saturating_add(field.offset),
                        typ: field.typ,
                        ..way.clone()
                    };
                    there.steps.push(Step { owner: way.typ, field: field.name, offset: field.offset });
                    if wanted {
                        return Ok(there);
                    }
                    next.push(there);
                }
            }
            level = next;
        }
        Err(Error::NoType(format!("field `{name}` of `{}`", self.string(&start.typ)?)))
    }

    fn at(&self, address: u64) -> Result<Type, Error> {
        if !(self.base..self.end).contains(&address) {
            return Err(Error::malformed(
                "type",
                address,
                "the address is outside the types of the executable",
            ));
        }
        let data = self.image.bytes("type", address, TYPE)?;
        let kind = data[23];
        Ok(Type {
            address,
            kind: Kind::from_byte(kind)
                .ok_or_else(|| Error::malformed("type", address, format!("unknown kind {kind}")))?,
            size: bytes::u64_at(data, 0).unwrap_or_default(),
            align: u64::from(data[21]),
            flags: data[20],
            name: bytes::i32_at(data, 40).unwrap_or_default(),
        })
    }

    /// A name with its flags.
    fn name(&self, address: u64) -> Result<(&'a str, u8), Error> {
        let (name, flags) = self.name_bytes(address)?;
        let name =
            str::from_utf8(name).map_err(|_| Error::malformed("type name", address, "it is not UTF-8"))?;
        Ok((name, flags))
    }

    /// The name of a field or method.
    fn member_name(&self, address: u64) -> Result<(&'a str, u8), Error> {
        if self.name_bytes(address)?.0.len() > MAX_MEMBER_NAME {
            return Err(Error::malformed("name of a member", address, "it is too long to be one"));
        }
        self.name(address)
    }

    /// Reads a flag byte, the length as a varint, the bytes.
    fn name_bytes(&self, address: u64) -> Result<(&'a [u8], u8), Error> {
        let data = self.image.from("type name", address)?;
        let broken = |why: &str| Error::malformed("type name", address, why);
        let (length, used) = data.varint(1).ok_or_else(|| broken("its length never ends"))?;
        if length > MAX_NAME {
            return Err(broken("it is too long to be one"));
        }
        let cut_off = || broken("it is cut off");
        let name = data.get(1 + used, length.into()).ok_or_else(cut_off)?;
        let flags = data.get(0, 1).and_then(|flags| flags.first()).ok_or_else(cut_off)?;
        Ok((name, *flags))
    }

    fn slice(&self, typ: &Type, kind: Kind, offset: u64) -> Result<(u64, u64), Error> {
        if typ.kind != kind {
            return Err(Error::malformed("type", typ.address, format!("a {:?}, not a {kind:?}", typ.kind)));
        }
        let data = self.image.pointer("type members", typ.address + offset)?;
        let count = self.image.u64("type members", typ.address + offset + 8)?;
        if count > MAX_MEMBERS {
            return Err(Error::malformed("type members", typ.address, format!("it claims {count}")));
        }
        Ok((data, count))
    }

    /// Number of a struct's fields or an interface's methods.
    fn count(&self, typ: &Type) -> Result<u64, Error> {
        Ok(self.slice(typ, typ.kind, TYPE + 8)?.1)
    }

    /// Address of a type or name offset.
    fn offset(&self, offset: i32) -> u64 {
        self.base.wrapping_add_signed(offset.into())
    }

    /// Address of the part for named types: directly after the part of the kind.
    fn uncommon(&self, typ: &Type) -> Option<u64> {
        if typ.flags & FLAG_UNCOMMON == 0 {
            return None;
        }
        Some(typ.address + TYPE + self.kind_part(typ.kind)?)
    }

    /// Size of the part of the kind.
    fn kind_part(&self, kind: Kind) -> Option<u64> {
        Some(match kind {
            Kind::Pointer | Kind::Slice | Kind::Func => 8,
            Kind::Array => 24,
            Kind::Chan => 16,
            Kind::Interface | Kind::Struct => 32,
            // Go 1.24 and 1.27 changed it. Only the linear search of Go 1.27 needs it.
            Kind::Map => match self.types {
                List::Range(..) => 88,
                List::Links(..) => return None,
            },
            _ => 0,
        })
    }
}

/// Adds a type with the searched string.
fn push_namesake(found: &mut Vec<Type>, typ: Type) -> Result<(), Error> {
    if found.len() == MAX_NAMESAKES {
        let why = format!("more than {MAX_NAMESAKES} types have its string");
        return Err(Error::malformed("type", typ.address, why));
    }
    found.push(typ);
    Ok(())
}
