//! Runtime type descriptors: the layouts and signatures that survive stripping.
//!
//! The layout of a descriptor is that of `internal/abi.Type`
//! (<https://github.com/golang/go/blob/go1.26.5/src/internal/abi/type.go#L20-L43>).

use crate::{Error, bytes, image::Image, module_data::ModuleData};

/// Size of `abi.Type`, after which the part of the kind follows.
const TYPE: u64 = 48;
const UNCOMMON: u64 = 16;
const FLAG_UNCOMMON: u8 = 1;
const FLAG_EXTRA_STAR: u8 = 2;
const FLAG_NAMED: u8 = 4;
const NAME_EMBEDDED: u8 = 8;
/// The longest name that is believed; generic instantiations grow long.
const MAX_NAME: u32 = 1 << 14;
/// The most fields, methods or parameters that are believed.
const MAX_MEMBERS: u64 = 1 << 14;
/// How deep embedded structs are searched for a promoted field, and how many of them.
const MAX_EMBEDDING: usize = 8;
const MAX_EMBEDDED: usize = 256;

/// The kinds of `reflect.Kind` that a layout or a calling convention can depend on.
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

/// A field of a struct type.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Its name; for an embedded field the type's.
    pub name: &'a str,
    /// Its type.
    pub typ: Type,
    /// Bytes from the start of the struct.
    pub offset: u64,
    /// Whether its own fields are promoted.
    pub embedded: bool,
}

/// Parameters and results of a function type, without a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The parameters' types, in order.
    pub parameters: Vec<Type>,
    /// The results' types, in order.
    pub results: Vec<Type>,
}

/// How to get from a pointer to a field somewhere behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Offsets of the pointers to follow on the way, each from where the one before led.
    pub dereferences: Vec<u64>,
    /// Offset of the field from where the last pointer led.
    pub offset: u64,
    /// The field's type.
    pub typ: Type,
}

/// The type descriptors of an executable.
#[derive(Debug)]
pub struct Types<'a> {
    image: &'a Image<'a>,
    base: u64,
    end: u64,
    /// Offsets of the unnamed types, sorted by their string.
    typelinks: &'a [u8],
}

impl<'a> Types<'a> {
    pub(crate) fn parse(image: &'a Image<'a>, module: &ModuleData) -> Result<Self, Error> {
        let (address, count) = module.typelinks;
        let typelinks = image.bytes("typelinks", address, count.saturating_mul(4))?;
        Ok(Self { image, base: module.types, end: module.etypes, typelinks })
    }

    /// A named type that something in the executable points to, by package path and name.
    ///
    /// Strings hold only the last element of the package path, hence the comparison of the whole.
    pub fn find(&self, package: &str, name: &str) -> Result<Type, Error> {
        let short = package.rsplit('/').next().unwrap_or(package);
        for pointer in self.unnamed(&format!("*{short}.{name}"))? {
            if pointer.kind == Kind::Pointer {
                let target = self.element(&pointer)?;
                if self.package(&target)? == Some(package) {
                    return Ok(target);
                }
            }
        }
        Err(Error::NoType(format!("`{package}.{name}`")))
    }

    /// An unnamed type, such as a function type, by its string.
    pub fn find_unnamed(&self, string: &str) -> Result<Type, Error> {
        self.unnamed(string)?.into_iter().next().ok_or_else(|| Error::NoType(format!("`{string}`")))
    }

    /// All unnamed types of a string, by binary search: the linker sorts them.
    /// <https://github.com/golang/go/blob/go1.26.5/src/cmd/link/internal/ld/typelink.go#L22-L50>
    fn unnamed(&self, wanted: &str) -> Result<Vec<Type>, Error> {
        let count = self.typelinks.len() / 4;
        let entry = |index: usize| -> Result<(&'a str, Type), Error> {
            let offset = bytes::i32_at(self.typelinks, index * 4).unwrap_or_default();
            let typ = self.at(self.base.wrapping_add_signed(offset.into()))?;
            Ok((self.string(&typ)?, typ))
        };
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
            found.push(typ);
        }
        Ok(found)
    }

    /// The type's string, such as `*v1.Pod`: with the last element of the package path only.
    pub fn string(&self, typ: &Type) -> Result<&'a str, Error> {
        let (name, _) = self.name(self.base.wrapping_add_signed(typ.name.into()))?;
        Ok(if typ.flags & FLAG_EXTRA_STAR != 0 { name.strip_prefix('*').unwrap_or(name) } else { name })
    }

    /// The path of the package that a named type is declared in.
    pub fn package(&self, typ: &Type) -> Result<Option<&'a str>, Error> {
        if typ.flags & FLAG_NAMED == 0 {
            return Ok(None);
        }
        let Some(uncommon) = self.uncommon(typ) else { return Ok(None) };
        let data = self.image.bytes("uncommon type", uncommon, 4)?;
        match bytes::i32_at(data, 0) {
            None | Some(0) => Ok(None),
            Some(offset) => Ok(Some(self.name(self.base.wrapping_add_signed(offset.into()))?.0)),
        }
    }

    /// What a pointer, slice, array, channel or map holds.
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
        self.at(self.image.u64("element type", typ.address + offset)?)
    }

    /// Number of elements of an array type.
    pub fn array_len(&self, typ: &Type) -> Result<u64, Error> {
        self.image.u64("array length", typ.address + TYPE + 16)
    }

    /// The fields of a struct type, in order.
    pub fn fields(&self, typ: &Type) -> Result<Vec<Field<'a>>, Error> {
        const FIELD: u64 = 24;
        let (fields, count) = self.slice(typ, Kind::Struct, TYPE + 8)?;
        let data = self.image.bytes("struct fields", fields, count * FIELD)?;
        data.chunks_exact(FIELD as usize)
            .map(|field| {
                let word = |at| bytes::u64_at(field, at).unwrap_or_default();
                let (name, flags) = self.name(word(0))?;
                let typ = self.at(word(8))?;
                Ok(Field { name, typ, offset: word(16), embedded: flags & NAME_EMBEDDED != 0 })
            })
            .collect()
    }

    /// The methods of an interface type, sorted by name: the index is the slot in an itab.
    pub fn interface_methods(&self, typ: &Type) -> Result<Vec<(&'a str, Type)>, Error> {
        const METHOD: u64 = 8;
        let (methods, count) = self.slice(typ, Kind::Interface, TYPE + 8)?;
        let data = self.image.bytes("interface methods", methods, count * METHOD)?;
        data.chunks_exact(METHOD as usize)
            .map(|method| {
                let offset = |at| i64::from(bytes::i32_at(method, at).unwrap_or_default());
                let (name, _) = self.name(self.base.wrapping_add_signed(offset(0)))?;
                Ok((name, self.at(self.base.wrapping_add_signed(offset(4)))?))
            })
            .collect()
    }

    /// Parameters and results of a function type.
    pub fn signature(&self, typ: &Type) -> Result<Signature, Error> {
        if typ.kind != Kind::Func {
            return Err(Error::malformed("function type", typ.address, format!("it is a {:?}", typ.kind)));
        }
        let counts = self.image.bytes("function type", typ.address + TYPE, 4)?;
        let inputs = u64::from(bytes::u16_at(counts, 0).unwrap_or_default());
        // The top bit says that the last parameter is variadic.
        let outputs = u64::from(bytes::u16_at(counts, 2).unwrap_or_default() & 0x7fff);
        let uncommon = if typ.flags & FLAG_UNCOMMON != 0 { UNCOMMON } else { 0 };
        let list = typ.address + TYPE + 8 + uncommon;
        let data = self.image.bytes("function type", list, (inputs + outputs) * 8)?;
        let mut types = data.chunks_exact(8).map(|word| self.at(bytes::u64_at(word, 0).unwrap_or_default()));
        let parameters = types.by_ref().take(inputs as usize).collect::<Result<_, _>>()?;
        Ok(Signature { parameters, results: types.collect::<Result<_, _>>()? })
    }

    /// The way from a value of struct type `from` to the field at the end of `path`, following Go's rule for
    /// promoted fields, through embedded pointers too.
    pub fn path(&self, from: &Type, path: &[&str]) -> Result<Path, Error> {
        let mut way = Path { dereferences: Vec::new(), offset: 0, typ: *from };
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

    fn promoted(&self, start: &Path, name: &str) -> Result<Path, Error> {
        let mut level = vec![start.clone()];
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
                for field in self.fields(&way.typ)? {
                    let there = Path {
                        offset: way.offset.saturating_add(field.offset),
                        typ: field.typ,
                        ..way.clone()
                    };
                    if field.name == name {
                        return Ok(there);
                    }
                    if field.embedded && next.len() < MAX_EMBEDDED {
                        next.push(there);
                    }
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

    /// A flag byte, the length as a varint, the bytes.
    fn name(&self, address: u64) -> Result<(&'a str, u8), Error> {
        let data = self.image.from("type name", address)?;
        let broken = |why: &str| Error::malformed("type name", address, why);
        let (length, used) = bytes::varint(data, 1).ok_or_else(|| broken("its length never ends"))?;
        if length > MAX_NAME {
            return Err(broken("it is too long to be one"));
        }
        let name = data.get(1 + used..1 + used + length as usize).ok_or_else(|| broken("it is cut off"))?;
        Ok((str::from_utf8(name).map_err(|_| broken("it is not UTF-8"))?, data[0]))
    }

    fn slice(&self, typ: &Type, kind: Kind, offset: u64) -> Result<(u64, u64), Error> {
        if typ.kind != kind {
            return Err(Error::malformed("type", typ.address, format!("a {:?}, not a {kind:?}", typ.kind)));
        }
        let data = self.image.u64("type members", typ.address + offset)?;
        let count = self.image.u64("type members", typ.address + offset + 8)?;
        if count > MAX_MEMBERS {
            return Err(Error::malformed("type members", typ.address, format!("it claims {count}")));
        }
        Ok((data, count))
    }

    /// Where the part of named types stands: directly after the part of the kind.
    fn uncommon(&self, typ: &Type) -> Option<u64> {
        if typ.flags & FLAG_UNCOMMON == 0 {
            return None;
        }
        let kind_part = match typ.kind {
            Kind::Pointer | Kind::Slice | Kind::Func => 8,
            Kind::Array => 24,
            Kind::Chan => 16,
            Kind::Interface | Kind::Struct => 32,
            // Maps changed with Go 1.24; nothing that is looked up by package is a named map.
            Kind::Map => return None,
            _ => 0,
        };
        Some(typ.address + TYPE + kind_part)
    }
}
