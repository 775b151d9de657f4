//! A reader of BTF, just for what is needed here: where a struct's members are, how large it is, what names exist.
//!
//! Format: Documentation/bpf/btf.rst. A module's BTF is split: its type ids and string offsets go on where vmlinux's end. The
//! libraries that read split BTF are LGPL or do not look into anonymous members, hence our own.

use std::{collections::HashMap, sync::Arc};
use thiserror::Error;

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_FUNC: u32 = 12;
const KIND_TYPE_TAG: u32 = 18;

/// Why a BTF file is not understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// Too short, or a part lies outside the file.
    #[error("BTF is cut off at byte {0}")]
    Truncated(usize),
    /// Not BTF, or of the other byte order.
    #[error("not BTF of this machine's byte order (magic {0:#06x})")]
    Magic(u16),
    /// A kind newer than this reader: the size of its entry is not known.
    #[error("BTF type {id} has the unknown kind {kind}")]
    Kind {
        /// Type id.
        id: u32,
        /// Its kind.
        kind: u32,
    },
}

/// A struct or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Composite {
    at: usize,
    members: usize,
    size: u32,
    bitfields: bool,
}

/// Parsed BTF: structs and unions by name, names of functions and typedefs.
#[derive(Debug, Clone, Default)]
pub struct Btf {
    data: Vec<u8>,
    type_count: u32,
    string_bytes: u32,
    /// Ids and string offsets below these are the base's.
    first_id: u32,
    first_string: u32,
    strings_at: usize,
    composites: HashMap<u32, Composite>,
    composite_names: HashMap<String, u32>,
    /// Type id -> the type it only qualifies or renames.
    aliases: HashMap<u32, u32>,
    /// How many functions have the name, and the first one's id.
    functions: HashMap<String, (u32, u32)>,
    typedefs: HashMap<String, u32>,
    /// Base's string section length and type count are all a split BTF needs for its own structs; a member's type may be in
    /// the base, and then it is looked up there.
    base: Option<Arc<Btf>>,
}

fn u32_at(data: &[u8], at: usize) -> Result<u32, BtfError> {
    let bytes = data.get(at..at + 4).ok_or(BtfError::Truncated(at))?;
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

impl Btf {
    /// Parses a whole file.
    ///
    /// # Errors
    /// [`BtfError`]: cut off, not BTF, of a newer format.
    pub fn parse(data: Vec<u8>, base: Option<&Arc<Btf>>) -> Result<Btf, BtfError> {
        let header = data.get(..24).ok_or(BtfError::Truncated(data.len()))?;
        let magic = u16::from_ne_bytes([header[0], header[1]]);
        if magic != MAGIC {
            return Err(BtfError::Magic(magic));
        }
        let header_len = u32_at(&data, 4)? as usize;
        let types_at = header_len + u32_at(&data, 8)? as usize;
        let types_end = types_at + u32_at(&data, 12)? as usize;
        let strings_at = header_len + u32_at(&data, 16)? as usize;
        let string_bytes = u32_at(&data, 20)?;
        if types_end > data.len() || strings_at + string_bytes as usize > data.len() {
            return Err(BtfError::Truncated(data.len()));
        }
        let mut btf = Btf {
            first_id: base.map_or(1, |b| b.type_count),
            first_string: base.map_or(0, |b| b.string_bytes),
            strings_at,
            string_bytes,
            base: base.cloned(),
            ..Btf::default()
        };
        let mut at = types_at;
        let mut id = btf.first_id;
        while at < types_end {
            let name_at = u32_at(&data, at)?;
            let info = u32_at(&data, at + 4)?;
            let size_or_type = u32_at(&data, at + 8)?;
            let kind = info >> 24 & 0x1f;
            let vlen = (info & 0xffff) as usize;
            let extra = match kind {
                1 | 14 | 17 => 4,
                2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0,
                3 => 12,
                KIND_STRUCT | KIND_UNION => 12 * vlen,
                6 => 8 * vlen,
                13 => 8 * vlen,
                15 | 19 => 12 * vlen,
                _ => return Err(BtfError::Kind { id, kind }),
            };
            if at + 12 + extra > types_end {
                return Err(BtfError::Truncated(at));
            }
            let name = || btf.string(&data, name_at).to_owned();
            match kind {
                KIND_STRUCT | KIND_UNION => {
                    let name = name();
                    btf.composites.insert(
                        id,
                        Composite {
                            at: at + 12,
                            members: vlen,
                            size: size_or_type,
                            bitfields: info >> 31 != 0,
                        },
                    );
                    if !name.is_empty() {
                        // The first wins: later ones of the same name are variants of odd compilation units.
                        btf.composite_names.entry(name).or_insert(id);
                    }
                }
                KIND_FUNC => {
                    let name = name();
                    btf.functions.entry(name).or_insert((0, id)).0 += 1;
                }
                KIND_TYPEDEF | KIND_CONST | KIND_VOLATILE | KIND_TYPE_TAG => {
                    if kind == KIND_TYPEDEF {
                        let name = name();
                        btf.typedefs.insert(name, id);
                    }
                    btf.aliases.insert(id, size_or_type);
                }
                _ => {}
            }
            at += 12 + extra;
            id += 1;
        }
        btf.type_count = id;
        btf.data = data;
        Ok(btf)
    }

    fn string<'a>(&'a self, data: &'a [u8], offset: u32) -> &'a str {
        if offset < self.first_string {
            return self
                .base
                .as_deref()
                .map_or("", |base| base.string(&base.data, offset));
        }
        let start = self.strings_at + (offset - self.first_string) as usize;
        let bytes = data.get(start..).unwrap_or_default();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or("")
    }

    fn composite(&self, mut id: u32) -> Option<(&Btf, Composite)> {
        // Depth bounded: a malformed file must not loop.
        for _ in 0..8 {
            if id < self.first_id {
                return self.base.as_deref()?.composite(id);
            }
            if let Some(composite) = self.composites.get(&id) {
                return Some((self, *composite));
            }
            id = *self.aliases.get(&id)?;
        }
        None
    }

    fn named(&self, name: &str) -> Option<(&Btf, Composite)> {
        match self.composite_names.get(name) {
            Some(&id) => self.composite(id),
            None => self.base.as_deref()?.named(name),
        }
    }

    /// `sizeof(struct name)`, bytes.
    pub fn size_of(&self, name: &str) -> Option<u32> {
        self.named(name).map(|(_, c)| c.size)
    }

    /// Offset of `path` ("member" or "member.inner") in `struct name`, bytes. Looks into anonymous members.
    pub fn offset_of(&self, name: &str, path: &str) -> Option<u32> {
        let (mut btf, mut composite) = self.named(name)?;
        let mut offset = 0;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let (bits, type_id) = btf.member(composite, part, 0)?;
            offset += bits / 8;
            if parts.peek().is_some() {
                (btf, composite) = btf.composite(type_id)?;
            }
        }
        Some(offset)
    }

    /// Size of the struct that `struct name`'s member `member` is, bytes.
    pub fn member_size(&self, name: &str, member: &str) -> Option<u32> {
        let (btf, composite) = self.named(name)?;
        let (_, type_id) = btf.member(composite, member, 0)?;
        btf.composite(type_id).map(|(_, c)| c.size)
    }

    fn member(&self, composite: Composite, wanted: &str, depth: u32) -> Option<(u32, u32)> {
        if depth > 8 {
            return None;
        }
        for i in 0..composite.members {
            let at = composite.at + 12 * i;
            let name = self.string(&self.data, u32_at(&self.data, at).ok()?);
            let type_id = u32_at(&self.data, at + 4).ok()?;
            let mut bits = u32_at(&self.data, at + 8).ok()?;
            if composite.bitfields {
                bits &= 0xff_ffff;
            }
            if name == wanted {
                return Some((bits, type_id));
            }
            if name.is_empty()
                && let Some((btf, inner)) = self.composite(type_id)
                && let Some((inner_bits, found)) = btf.member(inner, wanted, depth + 1)
            {
                return Some((bits + inner_bits, found));
            }
        }
        None
    }

    /// How many functions of this name there are in this BTF, its base left out (0: none; more than 1: fentry would pick one of them blindly).
    pub fn function_count(&self, name: &str) -> u32 {
        self.functions.get(name).map_or(0, |(count, _)| *count)
    }

    /// Type id of the function of this name; `None`: there is none, or more than one.
    pub fn function_id(&self, name: &str) -> Option<u32> {
        self.functions
            .get(name)
            .and_then(|&(count, id)| (count == 1).then_some(id))
    }

    /// Whether the tracepoint can be attached by BTF (`btf_trace_<name>`).
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.typedefs.contains_key(&format!("btf_trace_{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds BTF by hand: (name, kind, vlen, size_or_type, extra words).
    fn build(first_string: u32, types: &[(&str, u32, u32, u32, Vec<u32>)], names: &[&str]) -> Vec<u8> {
        let mut strings = if first_string == 0 { vec![0u8] } else { vec![] };
        let mut index = HashMap::new();
        for name in types.iter().map(|t| t.0).chain(names.iter().copied()) {
            if !name.is_empty() && !index.contains_key(name) {
                index.insert(name.to_owned(), first_string + strings.len() as u32);
                strings.extend_from_slice(name.as_bytes());
                strings.push(0);
            }
        }
        let mut body = Vec::new();
        for (name, kind, vlen, size, extra) in types {
            body.extend_from_slice(&index.get(*name).copied().unwrap_or(0).to_ne_bytes());
            body.extend_from_slice(&(kind << 24 | vlen).to_ne_bytes());
            body.extend_from_slice(&size.to_ne_bytes());
            for word in extra {
                // Words with the high bit stand for the n-th extra name.
                let value = if word >> 31 != 0 {
                    index[names[(word & 0xff) as usize]]
                } else {
                    *word
                };
                body.extend_from_slice(&value.to_ne_bytes());
            }
        }
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC.to_ne_bytes());
        out.extend_from_slice(&[1, 0]);
        for word in [24, 0, body.len() as u32, body.len() as u32, strings.len() as u32] {
            out.extend_from_slice(&u32::to_ne_bytes(word));
        }
        out.extend_from_slice(&body);
        out.extend_from_slice(&strings);
        out
    }

    const N: u32 = 1 << 31;

    fn vmlinux() -> Arc<Btf> {
        // 1: int; 2: struct inner { int deep @32 }; 3: union <anonymous> { inner @0 }; 4: struct outer { int a @0; <3> @64; inner b @128 }
        let data = build(
            0,
            &[
                ("int", 1, 0, 4, vec![0]),
                ("inner", 4, 1, 8, vec![N, 1, 32]),
                ("", 5, 1, 8, vec![N | 1, 2, 0]),
                ("outer", 4, 3, 24, vec![N | 2, 1, 0, 0, 3, 64, N | 3, 2, 128]),
                ("exit_aio", 12, 0, 1, vec![]),
                ("btf_trace_contention_begin", 8, 0, 1, vec![]),
            ],
            &["deep", "in_union", "a", "b"],
        );
        Arc::new(Btf::parse(data, None).unwrap())
    }

    #[test]
    fn members_also_anonymous_and_nested() {
        let btf = vmlinux();
        assert_eq!(btf.offset_of("outer", "a"), Some(0));
        assert_eq!(btf.offset_of("outer", "in_union"), Some(8));
        assert_eq!(btf.offset_of("outer", "in_union.deep"), Some(12));
        assert_eq!(btf.offset_of("outer", "b.deep"), Some(20));
        assert_eq!(btf.offset_of("outer", "missing"), None);
        assert_eq!(btf.offset_of("missing", "a"), None);
        assert_eq!(btf.size_of("outer"), Some(24));
        assert_eq!(btf.member_size("outer", "b"), Some(8));
    }

    #[test]
    fn names_of_functions_and_tracepoints() {
        let btf = vmlinux();
        assert_eq!(btf.function_count("exit_aio"), 1);
        assert_eq!(btf.function_count("exit_ai"), 0);
        assert!(btf.has_tracepoint("contention_begin"));
        assert!(!btf.has_tracepoint("contended_release"));
    }

    #[test]
    fn split_btf_goes_on_where_its_base_ends() {
        let base = vmlinux();
        // 7: struct uio_device { inner dev @0; int minor @64 }
        let data = build(
            base.string_bytes,
            &[
                ("uio_device", 4, 2, 16, vec![N, 2, 0, N | 1, 1, 64]),
                ("uio_write", 12, 0, 1, vec![]),
                ("name_show", 12, 0, 1, vec![]),
                ("name_show", 12, 0, 1, vec![]),
            ],
            &["dev", "minor"],
        );
        let module = Btf::parse(data, Some(&base)).unwrap();
        assert_eq!(module.offset_of("uio_device", "minor"), Some(8));
        assert_eq!(module.offset_of("uio_device", "dev.deep"), Some(4));
        assert_eq!(
            module.offset_of("outer", "a"),
            Some(0),
            "base structs through the module"
        );
        assert_eq!(module.function_id("uio_write"), Some(8));
        assert_eq!(module.function_id("name_show"), None, "two of that name");
        assert_eq!(
            module.function_id("exit_aio"),
            None,
            "the base's, not the module's"
        );
        assert_eq!(base.function_id("exit_aio"), Some(5));
    }

    #[test]
    fn malformed_files_are_errors() {
        assert_eq!(Btf::parse(vec![], None).unwrap_err(), BtfError::Truncated(0));
        assert_eq!(Btf::parse(vec![0; 24], None).unwrap_err(), BtfError::Magic(0));
        let whole = build(0, &[("int", 1, 0, 4, vec![0])], &[]);
        for cut in 0..whole.len() {
            assert!(Btf::parse(whole[..cut].to_vec(), None).is_err(), "cut at {cut}");
        }
        let unknown = build(0, &[("x", 31, 0, 0, vec![])], &[]);
        assert_eq!(
            Btf::parse(unknown, None).unwrap_err(),
            BtfError::Kind { id: 1, kind: 31 }
        );
    }
}
