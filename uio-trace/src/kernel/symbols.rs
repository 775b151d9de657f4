//! Kernel symbols from /proc/kallsyms: exact names, never prefixes (`percpu_ref_switch_to_atomic_rcu.cold` is not the function).

use super::Root;
use std::collections::HashMap;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Module it is in; `None`: vmlinux.
    pub module: Option<String>,
}

const PER_CPU_OFFSET: &str = "__per_cpu_offset";

/// Text symbols of the kernel and its modules.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Ascending by address: address, start and length of the name, module index (0: vmlinux).
    table: Vec<(u64, u32, u16, u16)>,
    names: String,
    modules: Vec<String>,
    /// Why addresses are not there.
    hidden: bool,
    /// `__per_cpu_offset`, the only datum that is wanted.
    per_cpu_offset: u64,
}

impl Symbols {
    /// Reads them. Without permission all addresses are 0: then nothing resolves, and [`Symbols::hidden`] is true.
    pub fn read(root: &Root) -> Symbols {
        match std::fs::read_to_string(root.join("proc/kallsyms")) {
            Ok(text) => Symbols::parse(&text),
            Err(_) => Symbols {
                hidden: true,
                ..Symbols::default()
            },
        }
    }

    /// From kallsyms' text: `address type name [module]` a line.
    pub fn parse(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        let mut module_index: HashMap<&str, u16> = HashMap::new();
        let mut any_address = false;
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if name == PER_CPU_OFFSET && fields.clone().next().is_none() {
                symbols.per_cpu_offset = u64::from_str_radix(address, 16).unwrap_or(0);
            }
            if !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            any_address |= address != 0;
            let module = fields.next().map_or(0, |module| {
                let module = module.trim_start_matches('[').trim_end_matches(']');
                *module_index.entry(module).or_insert_with(|| {
                    symbols.modules.push(module.to_owned());
                    symbols.modules.len() as u16
                })
            });
            let Ok(length) = u16::try_from(name.len()) else {
                continue;
            };
            let start = symbols.names.len() as u32;
            symbols.names.push_str(name);
            symbols.table.push((address, start, length, module));
        }
        symbols.table.sort_by_key(|entry| entry.0);
        symbols.hidden = !any_address;
        symbols
    }

    /// No addresses can be read (kernel.kptr_restrict, missing CAP_SYSLOG).
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Address of the table of per-CPU areas (include/asm-generic/percpu.h); 0: not known.
    pub fn per_cpu_offset(&self) -> u64 {
        self.per_cpu_offset
    }

    fn name(&self, entry: &(u64, u32, u16, u16)) -> &str {
        let start = entry.1 as usize;
        self.names.get(start..start + entry.2 as usize).unwrap_or("")
    }

    fn module(&self, entry: &(u64, u32, u16, u16)) -> Option<&str> {
        (entry.3 as usize)
            .checked_sub(1)
            .and_then(|i| self.modules.get(i))
            .map(String::as_str)
    }

    /// Addresses of the functions of exactly this name, with their module.
    pub fn addresses(&self, name: &str) -> Vec<(u64, Option<&str>)> {
        self.table
            .iter()
            .filter(|entry| entry.2 as usize == name.len() && self.name(entry) == name)
            .map(|entry| (entry.0, self.module(entry)))
            .collect()
    }

    /// Whether a function of this name exists in `module` (`None`: vmlinux).
    pub fn has(&self, name: &str, module: Option<&str>) -> bool {
        self.addresses(name).iter().any(|(_, m)| *m == module)
    }

    /// The function that has this address in it, as far as the next one's begin tells; `None`: before the first.
    pub fn around(&self, address: u64) -> Option<Symbol> {
        let i = self.table.partition_point(|entry| entry.0 <= address);
        let entry = self.table.get(i.checked_sub(1)?).filter(|entry| entry.0 != 0)?;
        Some(Symbol {
            name: self.name(entry).to_owned(),
            module: self.module(entry).map(str::to_owned),
        })
    }

    /// The function that starts at this address. Twins at one address: the first.
    pub fn at(&self, address: u64) -> Option<Symbol> {
        if address == 0 {
            return None;
        }
        let i = self.table.partition_point(|entry| entry.0 < address);
        let entry = self.table.get(i).filter(|entry| entry.0 == address)?;
        Some(Symbol {
            name: self.name(entry).to_owned(),
            module: self.module(entry).map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 t name_show
ffffffff81000200 t name_show
ffffffff81000300 t percpu_ref_switch_to_atomic_rcu
ffffffff81000400 t percpu_ref_switch_to_atomic_rcu.cold
ffffffff81000500 D some_data
ffffffff81000580 D __per_cpu_offset
ffffffffc0000000 t uio_write\t[uio]
ffffffffc0000100 t name_show\t[uio]
";

    #[test]
    fn names_match_exactly_and_know_their_module() {
        let symbols = Symbols::parse(TEXT);
        assert_eq!(
            symbols.addresses("percpu_ref_switch_to_atomic_rcu"),
            [(0xffffffff81000300, None)]
        );
        assert_eq!(symbols.addresses("name_show").len(), 3);
        assert!(symbols.has("uio_write", Some("uio")));
        assert!(!symbols.has("uio_write", None));
        assert!(symbols.addresses("some_data").is_empty(), "not a function");
        assert_eq!(symbols.per_cpu_offset(), 0xffffffff81000580);
    }

    #[test]
    fn addresses_resolve_only_at_their_start() {
        let symbols = Symbols::parse(TEXT);
        let uio = symbols.at(0xffffffffc0000000).unwrap();
        assert_eq!(
            (uio.name.as_str(), uio.module.as_deref()),
            ("uio_write", Some("uio"))
        );
        assert_eq!(symbols.at(0xffffffffc0000001), None);
        assert_eq!(symbols.at(0), None);
        assert_eq!(symbols.around(0xffffffffc0000001).unwrap().name, "uio_write");
        assert_eq!(symbols.around(1), None);
        assert_eq!(Symbols::parse("0000000000000000 T _stext\n").around(5), None);
    }

    #[test]
    fn zeroed_addresses_are_hidden() {
        assert!(Symbols::parse("0000000000000000 T _stext\n").hidden());
        assert!(!Symbols::parse(TEXT).hidden());
        assert!(Symbols::parse("").hidden());
    }
}
