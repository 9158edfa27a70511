//! Which program a process ran when: exec puts another one into it, and process ids are used again.

use crate::model::Map;
use crate::record::Session;
use crate::units::Time;

/// Something of each process image, found by process and moment. Images may be told in any order.
#[derive(Clone, Debug, Default)]
pub struct Images<T>(Map<u32, Vec<(Time, T)>>);

impl<T> Images<T> {
    /// An image began.
    pub fn begin(&mut self, session: &Session, of: T) {
        let images = self.0.entry(session.pid).or_default();
        let at = images.partition_point(|(started, _)| *started <= session.started);
        images.insert(at, (session.started, of));
    }

    /// That of the image that a process was at a moment: of the latest that had begun, or else the first.
    pub fn at(&self, pid: u32, moment: Time) -> Option<&T> {
        let images = self.0.get(&pid)?;
        let begun = images.partition_point(|(started, _)| *started <= moment);
        images.get(begun.saturating_sub(1)).map(|(_, of)| of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_the_image_that_had_begun() {
        let mut images = Images::default();
        for (started, program) in [(500, "after"), (100, "before"), (500, "again")] {
            images.begin(&Session { pid: 7, started: Time(started), ..Session::default() }, program);
        }
        let of = [0, 100, 499, 500, 9000].map(|moment| images.at(7, Time(moment)).copied().unwrap());
        assert_eq!(of, ["before", "before", "before", "again", "again"]);
        assert_eq!(images.at(8, Time(0)), None);
    }
}
