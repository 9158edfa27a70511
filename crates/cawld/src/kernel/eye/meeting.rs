//! Whom the probes follow: processes that are met or begin, their sessions, and those that are the library's.

use std::collections::BTreeSet;
use std::time::Duration;

use cawl_core::{EndKind, Time};
use cawl_probe::Probe;

use super::{Ask, Eye, OWN};
use crate::engine::Input;
use crate::kernel::held::Held;
use crate::kernel::part::Part;
use crate::kernel::process::{Process, running_wrote};

/// The library's session of a process that is met may have begun as long before.
const MET_BEFORE: Duration = Duration::from_secs(60);

impl<'a> Eye<'a> {
    /// Follows a target from now on, and what is there of it.
    pub(super) async fn follow_too(&mut self, ask: Ask) -> anyhow::Result<()> {
        self.latest_part += 1;
        let number = self.latest_part;
        for pid in ask.target.from_exec.clone() {
            let since = cawl_host::alive_since(pid);
            self.probe.follow(pid);
            if is_kept(&mut self.probe, pid, since) {
                self.left_out.insert(pid, number);
                self.translator.meet(pid);
            }
        }
        let (part, over) = Part::new(ask.target, &mut self.probe);
        self.parts.insert(number, part);
        // A child that was made while its parent was not followed yet is met in the next look.
        let mut tried = BTreeSet::new();
        while let Some(part) = self.parts.get(&number) {
            let found: Vec<u32> = part.wanted().into_iter().filter(|pid| tried.insert(*pid)).collect();
            if found.is_empty() {
                break;
            }
            for pid in found {
                self.meet(pid, Some(number)).await?;
            }
        }
        // The one who asked may have given up: then nobody takes the reply.
        drop(ask.reply.send(over));
        Ok(())
    }

    /// The part that a process belongs to.
    pub(super) fn part_of(&self, pid: u32) -> u32 {
        let known = self.processes.get(&pid).map(|process| process.part);
        known.or_else(|| self.left_out.get(&pid).copied()).unwrap_or_else(|| {
            let is_it = |(_, part): &(&u32, &Part)| part.wanted().contains(&pid);
            // With one there is no question.
            let mut parts = self.parts.iter();
            let found = if self.parts.len() == 1 { parts.next() } else { parts.find(is_it) };
            found.map_or(0, |(number, _)| *number)
        })
    }

    /// Follows a process that runs.
    pub(super) async fn meet(&mut self, pid: u32, part: Option<u32>) -> anyhow::Result<()> {
        let is_known = self.processes.contains_key(&pid) || self.left_out.contains_key(&pid);
        let since = cawl_host::alive_since(pid);
        if self.stopped.is_some() || is_known || since.is_none() {
            return Ok(());
        }
        // The kernel knows it if it was made by one that is followed: of its end it tells.
        let is_made = self.probe.follows(pid);
        if !self.probe.follow(pid) {
            let note = format!("process {pid} is not followed: there are too many at once");
            return self.note(note).await;
        }
        if !is_made && !is_kept(&mut self.probe, pid, since) {
            return Ok(());
        }
        let part = part.unwrap_or_else(|| self.part_of(pid));
        if self.leave_out(pid, part) {
            return Ok(());
        }
        self.translator.meet(pid);
        let written = running_wrote(pid);
        // It ends just now: if it was made by one that is followed, that is still to be read. Of one that
        // goes on we may not know what it wrote.
        if written.is_none() && self.counts && cawl_host::alive_since(pid).is_none() {
            if !is_made {
                self.probe.unfollow(pid);
            }
            return Ok(());
        }
        let now = cawl_host::now();
        let began = Time(now.0.saturating_sub(MET_BEFORE.as_nanos() as u64));
        self.begin_session((pid, part), (began, now), (None, None), written, false).await?;
        self.was_counted(pid, now);
        Ok(())
    }

    /// What a process had written was read at this time: it has that of its calls which were seen before.
    fn was_counted(&mut self, pid: u32, at: Time) {
        self.processes.get_mut(&pid).into_iter().for_each(|process| process.counted = at);
    }

    /// A process of which the probes told that it is there: it was made, or met. It may have ended meanwhile;
    /// what it had written by then is told if it is known.
    pub(super) async fn begin_or_keep(
        &mut self,
        (pid, parent): (u32, Option<u32>),
        at: Time,
        name: Option<String>,
        written: Option<u64>,
    ) -> anyhow::Result<()> {
        let is_known = self.processes.contains_key(&pid) || self.left_out.contains_key(&pid);
        if is_known || self.stopped.is_some_and(|stopped| at > stopped) {
            return Ok(());
        }
        let counted = if written.is_some() { at } else { cawl_host::now() };
        let written = written.or_else(|| running_wrote(pid));
        let part = self.part_of(parent.unwrap_or(pid));
        if parent.is_none() && self.leave_out(pid, part) {
            return Ok(());
        }
        if parent.is_none() {
            self.translator.meet(pid);
        }
        let began =
            if parent.is_some() { at } else { Time(at.0.saturating_sub(MET_BEFORE.as_nanos() as u64)) };
        let is_copy = parent.is_some();
        self.begin_session((pid, part), (began, at), (parent, name), written, is_copy).await?;
        if !is_copy {
            self.was_counted(pid, counted);
        }
        Ok(())
    }

    /// True for a process whose calls the tracer's library tells.
    fn leave_out(&mut self, pid: u32, part: u32) -> bool {
        let is_traced = self.connections.is_traced(pid);
        if is_traced {
            self.left_out.insert(pid, part);
        }
        is_traced
    }

    pub(super) async fn begin_session(
        &mut self,
        (pid, part): (u32, u32),
        (began, at): (Time, Time),
        known: (Option<u32>, Option<String>),
        written: Option<u64>,
        is_copy: bool,
    ) -> anyhow::Result<()> {
        let of_traced = known.0.is_some_and(|parent| {
            let parent_s = self.processes.get(&parent).map(|parent| parent.session);
            self.left_out.contains_key(&parent)
                || parent_s.is_some_and(|session| self.held.contains_key(&session))
        });
        let (process, session) = Process::new((pid, part), (began, at), known, written, self.connections);
        tracing::debug!(pid, program = session.program, "followed by probes");
        let (run, id) = (self.run, session.id);
        // A run that the probes see has no library.
        if run == OWN
            && let Some(held) = Held::new(pid, began, of_traced, is_copy)
        {
            self.held.insert(id, held);
        }
        self.processes.insert(pid, process);
        self.give(id, Input::act(move |engine| engine.begin(session, run))).await
    }

    /// From then on the tracer's library tells what a process does; the end of the probes' session of it.
    pub(super) fn is_the_library_s(&mut self, pid: u32, session: u32, from: Time) -> Option<Input> {
        let process = self.processes.remove(&pid)?;
        if process.session != session {
            self.processes.insert(pid, process);
            return None;
        }
        self.left_out.insert(pid, process.part);
        let end = process.end(from, EndKind::Running, None, None);
        Some(Input::act(move |engine| engine.end(end, None)))
    }
}

/// True if a process that is followed now is the one that has lived since then. Else its number is taken out
/// of the kernel's table: the end of a process before it was followed is not told, and another process may
/// get the number.
fn is_kept(probe: &mut Probe, pid: u32, since: Option<u64>) -> bool {
    let is_it = since.is_some() && cawl_host::alive_since(pid) == since;
    if !is_it {
        probe.unfollow(pid);
    }
    is_it
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_ended_while_it_was_met_is_not_followed() {
        let mut probe = match Probe::attach() {
            Ok(probe) => probe,
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (pid, since) = (child.id(), cawl_host::alive_since(child.id()));
        assert!(
            since.is_some() && probe.follow(pid) && is_kept(&mut probe, pid, since) && probe.follows(pid)
        );
        // The kernel takes it out as it ends; the number is followed again, as by one who looked before.
        drop(child.stdin.take());
        nix::sys::wait::waitid(
            nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(pid as i32)),
            nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
        )
        .unwrap();
        assert!(!probe.follows(pid) && probe.follow(pid));
        assert!(!is_kept(&mut probe, pid, since) && !probe.follows(pid));
        child.wait().unwrap();
        // Another process has the number.
        let own = std::process::id();
        assert!(probe.follow(own) && !is_kept(&mut probe, own, Some(1)) && !probe.follows(own));
    }
}
