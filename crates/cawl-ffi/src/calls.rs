//! What a machine is told and asked. Each call: who makes it, on what, when it begins; its cost is filled in.

use cawl_wire::Op;

use crate::cost::{answer, cawl_cost, cawl_levels};
use crate::machine::{cawl_file, cawl_machine, cawl_task};
use crate::status::{Outcome, cawl_status, cawl_status::*, guarded};

/// Lets a call of the machine happen, and fills in its cost.
///
/// # Safety
///
/// `cost` is what [`answer`] asks for.
#[inline(always)]
unsafe fn costing(
    machine: Option<&mut cawl_machine>,
    cost: *mut cawl_cost,
    call: impl FnOnce(&mut cawl_machine, &mut cawl_cost) -> Outcome<()>,
) -> cawl_status {
    guarded(|| {
        let machine = machine.ok_or(CAWL_ERROR_NULL)?;
        // SAFETY: by this function's own promise.
        let cost = unsafe { answer(cost) }?;
        call(machine, cost)
    })
}

/// Writes at the descriptor's position, in bytes, and moves it. CAWL_ERROR_VALUE beyond 2^40 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_write(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    bytes: u64,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| {
            machine.write(Op::Write, (task, descriptor), bytes, None, now_ns, cost)
        })
    }
}

/// Writes at a place of the file, both in bytes; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_pwrite(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    bytes: u64,
    offset: u64,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| {
            machine.write(Op::Pwrite, (task, descriptor), bytes, Some(offset), now_ns, cost)
        })
    }
}

/// Appends to a stream (CAWL_STREAM), in bytes: what fits its buffer costs a copy, and the buffer is written
/// when it is full. How large it is, the profile tells (`kernel.stream_buffer`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_fwrite(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    bytes: u64,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| {
            machine.write(Op::StreamWrite, (task, descriptor), bytes, None, now_ns, cost)
        })
    }
}

/// Writes what a stream has in its buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_fflush(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| {
            machine.flush(Op::StreamFlush, (task, descriptor), now_ns, cost)
        })
    }
}

/// Reads at the descriptor's position, in bytes, and moves it; no further than the file goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_read(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    bytes: u64,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| machine.read((task, descriptor), bytes, None, now_ns, cost))
    }
}

/// Reads at a place of the file, both in bytes; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_pread(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    bytes: u64,
    offset: u64,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| {
            machine.read((task, descriptor), bytes, Some(offset), now_ns, cost)
        })
    }
}

/// Waits until the file is on its device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_fsync(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| machine.flush(Op::Fsync, (task, descriptor), now_ns, cost))
    }
}

/// Waits until the file's data, and what it takes to read them, are on its device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_fdatasync(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| machine.flush(Op::Fdatasync, (task, descriptor), now_ns, cost))
    }
}

/// Closes a descriptor; a stream writes its buffer first. A file without name or descriptor goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_close(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    descriptor: i32,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe { costing(machine, cost, |machine, cost| machine.close(task, descriptor, now_ns, cost)) }
}

/// Sets the length of a file, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_truncate(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    file: cawl_file,
    size_bytes: u64,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe { costing(machine, cost, |machine, cost| machine.truncate(task, file, size_bytes, now_ns, cost)) }
}

/// Takes a file's name away. What is dirty of it is never written once no descriptor leads to it. Its numbers
/// may be used for a new file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_unlink(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    file: cawl_file,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe { costing(machine, cost, |machine, cost| machine.unlink(task, file, now_ns, cost)) }
}

/// Gives a file another name: that of the file `replaced`, which loses it as by cawl_unlink, or one that was
/// free if `replaced` is NULL. The file keeps its numbers. CAWL_ERROR_VALUE: they are of two devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_rename(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    file: cawl_file,
    replaced: Option<&cawl_file>,
    now_ns: u64,
    cost: *mut cawl_cost,
) -> cawl_status {
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe {
        costing(machine, cost, |machine, cost| machine.rename(task, file, replaced.copied(), now_ns, cost))
    }
}

/// Opens a file, and gives its descriptor: `how` has the bits CAWL_READ, CAWL_WRITE and others of cawl_open.
/// CAWL_ERROR_NO_FILE: it is not there, and CAWL_CREATE was not given. The descriptor is the process's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_open(
    machine: Option<&mut cawl_machine>,
    task: cawl_task,
    file: cawl_file,
    how: u32,
    now_ns: u64,
    descriptor: *mut i32,
    cost: *mut cawl_cost,
) -> cawl_status {
    let call = |machine: &mut cawl_machine, cost: &mut cawl_cost| {
        if descriptor.is_null() {
            return Err(CAWL_ERROR_NULL.into());
        }
        let number = machine.open(task, file, how, now_ns, cost)?;
        // SAFETY: cawl.h asks for a place for a number, or NULL.
        unsafe { descriptor.write(number) };
        Ok(())
    };
    // SAFETY: cawl.h asks for a cost whose size is set, or NULL.
    unsafe { costing(machine, cost, call) }
}

/// A file that was there before, of so many bytes: all of it is in the page cache if `cached` is not 0, else
/// nothing. CAWL_ERROR_EXISTS: the machine has it already.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_add_file(
    machine: Option<&mut cawl_machine>,
    file: cawl_file,
    size_bytes: u64,
    cached: i32,
) -> cawl_status {
    guarded(|| machine.ok_or(CAWL_ERROR_NULL)?.add_file(file, size_bytes, cached != 0))
}

/// Moves a descriptor's position to this place of its file, in bytes. No model has a cost of it.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_seek(machine: Option<&mut cawl_machine>, descriptor: i32, offset: u64) -> cawl_status {
    guarded(|| machine.ok_or(CAWL_ERROR_NULL)?.seek(descriptor, offset))
}

/// Lets time pass up to this moment, in ns: the flusher works. Calls begin no earlier afterwards; a moment in
/// the past does nothing. Before a call this is not needed, since each tells when it begins.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_advance(machine: Option<&mut cawl_machine>, now_ns: u64) -> cawl_status {
    guarded(|| machine.ok_or(CAWL_ERROR_NULL)?.advance(now_ns))
}

/// Sets the machine's dirty limits, in bytes (vm.dirty_background_bytes, vm.dirty_bytes). A lower hard limit
/// comes into force slowly, as in Linux (`update_dirty_limit`).
/// CAWL_ERROR_VALUE unless background < hard.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_set_limits(
    machine: Option<&mut cawl_machine>,
    background_bytes: u64,
    hard_bytes: u64,
) -> cawl_status {
    guarded(|| machine.ok_or(CAWL_ERROR_NULL)?.set_limits(background_bytes, hard_bytes))
}

/// Where the machine stands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_level(
    machine: Option<&mut cawl_machine>,
    levels: *mut cawl_levels,
) -> cawl_status {
    guarded(|| {
        let machine = machine.ok_or(CAWL_ERROR_NULL)?;
        // SAFETY: cawl.h asks for levels whose size is set, or NULL.
        let levels = unsafe { answer(levels) }?;
        machine.with_model(|model| levels.fill(model))
    })
}
