//! How deep the functions of a built library stand on the stack, by their machine code.
//!
//! From a function's first instruction on, every path is followed with the height of the stack. What is
//! called by a pointer, or lies in another library, ends a path; so does a panic, of which the library has
//! none that can happen.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::{Object, ObjectSection, ObjectSymbol};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Of the names of functions that do not return, and are there because the compiler cannot know that they are
/// not called.
const PANICS: &[&str] = &["panicking", "_fail", "panic_", "rust_begin_unwind", "_Unwind"];

/// A library's functions.
pub struct Library {
    code: Vec<u8>,
    base: u64,
    /// Names by address; one of several where functions are the same.
    names: BTreeMap<u64, Vec<String>>,
    exported: Vec<String>,
    /// What was found out: depth in bytes, and the way there.
    known: RefCell<HashMap<u64, (u64, String)>>,
}

/// What one function does with the stack.
#[derive(Default)]
struct Frame {
    depth: u64,
    /// Where on the stack, and what, it calls or jumps to.
    calls: Vec<(u64, u64)>,
}

impl Library {
    pub fn read(path: &Path) -> Library {
        let bytes = std::fs::read(path).expect("library");
        let file = object::File::parse(&*bytes).expect("ELF");
        let text = file.section_by_name(".text").expect(".text");
        let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let inside = (text.address()..text.address() + text.size()).contains(&symbol.address());
            if let (true, Ok(name)) = (inside && symbol.kind() != object::SymbolKind::Section, symbol.name())
            {
                names.entry(symbol.address()).or_default().push(name.to_owned());
            }
        }
        let exported = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
        Library {
            code: text.data().expect("code").to_vec(),
            base: text.address(),
            names,
            exported: exported.map(|symbol| symbol.name().expect("name").to_owned()).collect(),
            known: RefCell::default(),
        }
    }

    pub fn exported(&self) -> impl Iterator<Item = &str> {
        self.exported.iter().map(String::as_str)
    }

    /// The functions of this name, or whose mangled names have this part.
    pub fn named(&self, name: &str) -> Vec<u64> {
        let is = |own: &String| own == name || own.starts_with("_ZN12cawl_preload") && own.contains(name);
        self.names.iter().filter(|(_, names)| names.iter().any(is)).map(|(address, _)| *address).collect()
    }

    /// A function's name, without what the compiler adds.
    fn name(&self, function: u64) -> &str {
        let name = self.names.get(&function).map_or("?", |names| &names[0]);
        let name = name.strip_prefix("_ZN12cawl_preload").unwrap_or(name);
        name.rfind("17h").map_or(name, |hash| &name[..hash])
    }

    /// How deep a function and what it calls stand at most, in bytes, and the way there: each function with
    /// its share.
    pub fn deepest(&self, function: u64) -> (u64, String) {
        if let Some(known) = self.known.borrow().get(&function) {
            return known.clone();
        }
        let own = format!("{}(", self.name(function));
        self.known.borrow_mut().insert(function, (u64::MAX / 2, format!("{own}recursion)")));
        let frame = self.frame(function);
        let mut deepest = (frame.depth, format!("{own}{})", frame.depth));
        for (at, called) in frame.calls {
            let name = self.name(called);
            if PANICS.iter().any(|part| name.contains(part)) {
                continue;
            }
            let (further, way) = self.deepest(called);
            if at + further > deepest.0 {
                deepest = (at + further, format!("{own}{at}) > {way}"));
            }
        }
        self.known.borrow_mut().insert(function, deepest.clone());
        deepest
    }

    fn is_code(&self, at: u64) -> bool {
        (self.base..self.base + self.code.len() as u64).contains(&at)
    }

    fn frame(&self, function: u64) -> Frame {
        let mut frame = Frame::default();
        let end = self.names.range(function + 1..).next().map_or(u64::MAX, |(address, _)| *address);
        let (mut seen, mut paths) = (HashSet::new(), vec![(function, 0i64, 0i64)]);
        while let Some((start, mut depth, mut base)) = paths.pop() {
            let mut at = start;
            while self.is_code(at) && seen.insert(at) {
                if !(function..end).contains(&at) {
                    // A jump there is a call. What runs on into it does not: the call before never returns.
                    if at == start {
                        frame.calls.push((depth as u64, at));
                    }
                    break;
                }
                let bytes = &self.code[(at - self.base) as usize..];
                let next = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
                self.step(function, &next, &mut depth, &mut base);
                frame.depth = frame.depth.max(depth as u64);
                let near = next.near_branch_target();
                match next.flow_control() {
                    FlowControl::Next => {}
                    FlowControl::Call if self.is_code(near) => frame.calls.push((depth as u64 + 8, near)),
                    FlowControl::Call | FlowControl::IndirectCall => {
                        frame.depth = frame.depth.max(depth as u64 + 8)
                    }
                    FlowControl::ConditionalBranch => paths.push((near, depth, base)),
                    FlowControl::UnconditionalBranch => {
                        paths.push((near, depth, base));
                        break;
                    }
                    _ => break,
                }
                at = next.next_ip();
            }
        }
        frame
    }

    /// What one instruction does to the depth; `base` is that of the frame pointer.
    fn step(&self, function: u64, next: &Instruction, depth: &mut i64, base: &mut i64) {
        let writes_stack = next.op_count() > 0
            && next.op0_kind() == OpKind::Register
            && next.op0_register() == Register::RSP
            && !matches!(next.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
        let from_base = || next.memory_displacement64() as i64;
        match next.mnemonic() {
            Mnemonic::Push => *depth += 8,
            Mnemonic::Pop => *depth -= 8,
            Mnemonic::Leave => *depth = *base - 8,
            Mnemonic::Mov if next.code() == Code::Mov_r64_rm64 || next.code() == Code::Mov_rm64_r64 => {
                match (next.op0_register(), next.op1_register()) {
                    (Register::RBP, Register::RSP) => *base = *depth,
                    (Register::RSP, Register::RBP) => *depth = *base,
                    (Register::RSP, _) => panic!("{}: {next:?}", self.name(function)),
                    _ => {}
                }
            }
            Mnemonic::Sub if writes_stack && next.op1_kind() != OpKind::Register => {
                *depth += next.immediate(1) as i64;
            }
            // The arguments of execl() and its like, which the C library's own functions have there as well.
            Mnemonic::Sub if writes_stack && self.name(function).starts_with("cawl_c_exec") => {}
            Mnemonic::Add if writes_stack && next.op1_kind() != OpKind::Register => {
                *depth -= next.immediate(1) as i64;
            }
            Mnemonic::Lea if writes_stack && next.memory_base() == Register::RSP => *depth -= from_base(),
            Mnemonic::Lea if writes_stack && next.memory_base() == Register::RBP => {
                *depth = *base - from_base()
            }
            Mnemonic::And if writes_stack => *depth += -(next.immediate(1) as i64) - 8,
            _ => assert!(!writes_stack, "{}: {next:?}", self.name(function)),
        }
    }
}
