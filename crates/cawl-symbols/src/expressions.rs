//! The expressions of tables for unwinding, looked at before they are evaluated: one that jumps may never
//! end, and no compiler makes such.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, DebugFrame, EhFrame, Encoding,
    EndianSlice, LittleEndian, Operation, Reader, Section, UnwindSection,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// True if no expression of this .eh_frame, which begins at this address, jumps.
pub fn end(bytes: &[u8], address: u64) -> bool {
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    all_end(&section, &bases).is_ok_and(|end| end)
}

/// The same of a .debug_frame.
pub fn end_in_debug_frame(bytes: &[u8]) -> bool {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    all_end(&section, &BaseAddresses::default()).is_ok_and(|end| end)
}

fn all_end<'a, S>(section: &S, bases: &BaseAddresses) -> gimli::Result<bool>
where
    S: UnwindSection<Slice<'a>> + Section<Slice<'a>>,
{
    let mut entries = section.entries(bases);
    while let Some(entry) = entries.next()? {
        let do_end = match entry {
            CieOrFde::Cie(cie) => {
                instructions_end(cie.instructions(section, bases), section, cie.encoding())?
            }
            CieOrFde::Fde(partial) => {
                let fde = partial.parse(|section, bases, offset| section.cie_from_offset(bases, offset))?;
                instructions_end(fde.instructions(section, bases), section, fde.cie().encoding())?
            }
        };
        if !do_end {
            return Ok(false);
        }
    }
    Ok(true)
}

fn instructions_end<'a, S: UnwindSection<Slice<'a>>>(
    mut instructions: CallFrameInstructionIter<'_, Slice<'a>>,
    section: &S,
    encoding: Encoding,
) -> gimli::Result<bool> {
    while let Some(instruction) = instructions.next()? {
        let expression = match instruction {
            CallFrameInstruction::DefCfaExpression { expression }
            | CallFrameInstruction::Expression { expression, .. }
            | CallFrameInstruction::ValExpression { expression, .. } => expression.get(section)?,
            _ => continue,
        };
        let mut operations = expression.operations(encoding);
        while let Some(operation) = operations.next()? {
            if jumps(&operation) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn jumps<R: Reader>(operation: &Operation<R>) -> bool {
    matches!(operation, Operation::Skip { .. } | Operation::Bra { .. } | Operation::Call { .. })
}
