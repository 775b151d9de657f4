//! Names for the addresses in events, told to the model before the first event that uses them.

use crate::{
    event::{Event, EventKind, KernelPtr, RefState},
    kernel::{
        Root,
        symbols::{Symbol, Symbols},
    },
};
use std::{collections::HashSet, sync::Arc};

/// Shortest time between two readings of the kernel's symbols, ns: it costs tens of milliseconds.
const RELOAD_NS: u64 = 1_000_000_000;
/// Addresses remembered; a kernel has a few dozen release functions.
const KNOWN_MAX: usize = 4096;

/// Resolves release and confirm functions.
pub struct SymbolSource {
    root: Root,
    symbols: Arc<Symbols>,
    known: HashSet<KernelPtr>,
    unresolved: HashSet<KernelPtr>,
    read_at_ns: u64,
}

impl SymbolSource {
    /// Starts with symbols read before.
    pub fn new(root: Root, symbols: Arc<Symbols>, now_ns: u64) -> SymbolSource {
        SymbolSource {
            root,
            symbols,
            known: HashSet::new(),
            unresolved: HashSet::new(),
            read_at_ns: now_ns,
        }
    }

    /// Symbol events the event needs before it.
    pub fn before(&mut self, event: &Event, mut tell: impl FnMut(Event)) {
        let addresses = match &event.kind {
            EventKind::RefKill { release, confirm, .. } => [Some(*release), *confirm],
            EventKind::RefSwitched { release, .. } | EventKind::RefReleased { release, .. } => {
                [Some(*release), None]
            }
            // Memory that is no ref any more has no pointers to name.
            EventKind::RefLooked { release, state, .. } if *state != RefState::Gone => [Some(*release), None],
            _ => return,
        };
        for address in addresses.into_iter().flatten() {
            if self.known.contains(&address) || self.known.len() >= KNOWN_MAX {
                continue;
            }
            if let Some(symbol) = self.resolve(address, event.ts_ns) {
                self.known.insert(address);
                self.unresolved.remove(&address);
                tell(Event {
                    ts_ns: event.ts_ns,
                    kind: EventKind::Symbol {
                        addr: address,
                        name: symbol.name,
                        module: symbol.module,
                    },
                });
            }
        }
    }

    /// The function at this address, from the symbols as last read.
    pub fn name(&self, address: KernelPtr) -> Option<Symbol> {
        self.symbols.at(address.0)
    }

    /// The function that has this address in it; of one that is in none that is known, the address.
    pub fn function(&self, address: u64) -> String {
        match self.symbols.around(address) {
            Some(symbol) => symbol.name,
            None => format!("{address:#x}"),
        }
    }

    fn resolve(&mut self, address: KernelPtr, now_ns: u64) -> Option<Symbol> {
        if let Some(symbol) = self.symbols.at(address.0) {
            return Some(symbol);
        }
        // A module loaded since: read again, but not for an address that was not found even then.
        if now_ns.saturating_sub(self.read_at_ns) < RELOAD_NS || !self.unresolved.insert(address) {
            return None;
        }
        self.symbols = Arc::new(Symbols::read(&self.root));
        self.read_at_ns = now_ns;
        self.symbols.at(address.0)
    }
}
