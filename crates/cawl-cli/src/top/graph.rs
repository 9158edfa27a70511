//! The dirty level over time: a bar for each point as modelled, a dot as sampled, a line for each limit.

use std::collections::VecDeque;

use cawl_client::protocol::{HistoryPoint, Status};
use cawl_core::Regime;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;

use super::theme::Theme;
use crate::render::compact;

/// Columns for the names of the limits.
const LABELS: u16 = 20;

/// A level drawn as a line.
struct Line {
    /// Row from the bottom.
    row: u16,
    label: String,
}

pub struct Graph<'a> {
    pub history: &'a VecDeque<HistoryPoint>,
    /// The present limits.
    pub status: &'a Status,
    /// It ends at its highest level.
    pub zoom: bool,
    pub theme: Theme,
}

impl Graph<'_> {
    fn lines(&self, top: f64, height: u16) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        let Status { background_bytes, freerun_bytes, hard_bytes, .. } = *self.status;
        let limits = [("hard", hard_bytes), ("throttle", freerun_bytes), ("flush", background_bytes)];
        // A graph that ends below the limits is labelled with its end.
        let end = ("up to", top as u64);
        let is_below = limits.iter().all(|(_, level)| *level as f64 > top);
        // If two lines fall into one row, the more severe limit is named.
        for (name, level) in limits.into_iter().chain(is_below.then_some(end)) {
            let row = row_of(level, top, height);
            if level > 0 && level as f64 <= top && lines.iter().all(|line| line.row != row) {
                let tip = self.theme.sign("◂", "<");
                lines.push(Line { row, label: format!("{tip} {name} {}", compact::bytes(level)) });
            }
        }
        lines
    }

    fn column(
        &self,
        point: Option<&HistoryPoint>,
        top: f64,
        rows: u16,
        lines: &[Line],
        draw: &mut dyn FnMut(u16, &str, Style),
    ) {
        let theme = self.theme;
        let eighths = point
            .map_or(0.0, |point| (point.modelled_dirty_bytes as f64 / top * f64::from(rows) * 8.0).round());
        let sampled = point.and_then(|point| point.sampled_dirty_bytes).map(|level| row_of(level, top, rows));
        let bar = theme.regime(point.map_or(Regime::Free, |point| point.state));
        // A sign inside a bar is drawn in inverse.
        let inside = match theme.colour {
            true => Style::new().fg(Color::Black).bg(bar.fg.unwrap_or(Color::Reset)),
            false => Style::new().reversed(),
        };
        for row in 0..rows {
            let filled = (eighths - f64::from(row) * 8.0).clamp(0.0, 8.0) as usize;
            let is_full = if theme.unicode { filled == 8 } else { filled >= 4 };
            let is_line = lines.iter().any(|line| line.row == row);
            if sampled == Some(row) {
                draw(row, theme.sign("•", "o"), if is_full { inside } else { theme.fg(Color::Cyan) });
            } else if is_line && is_full {
                draw(row, theme.sign("─", "-"), inside);
            } else if theme.unicode && filled > 0 {
                draw(row, ["", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"][filled], bar);
            } else if is_full {
                draw(row, "#", bar);
            } else if is_line {
                draw(row, theme.sign("┄", "-"), theme.fg(Color::Blue));
            }
        }
    }
}

/// The row of a level, from the bottom.
fn row_of(level: u64, top: f64, height: u16) -> u16 {
    ((level as f64 / top * f64::from(height)) as u16).min(height.saturating_sub(1))
}

impl Widget for Graph<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.width <= LABELS || area.height == 0 {
            return;
        }
        let columns = area.width - LABELS;
        let from = self.history.len().saturating_sub(usize::from(columns));
        let visible: Vec<&HistoryPoint> = self.history.iter().skip(from).collect();
        let highest = visible
            .iter()
            .map(|point| point.modelled_dirty_bytes.max(point.sampled_dirty_bytes.unwrap_or(0)))
            .max();
        // A little above the hard limit, so that passing it looks different from reaching it.
        let least = if self.zoom { 0 } else { self.status.hard_bytes };
        let top = (least.max(highest.unwrap_or(0)) as f64 * 1.05).max(1.0);
        let lines = self.lines(top, area.height);
        let bottom = area.bottom() - 1;
        for column in 0..columns {
            let age = usize::from(columns - 1 - column);
            let point = visible.len().checked_sub(age + 1).map(|index| visible[index]);
            self.column(point, top, area.height, &lines, &mut |row, sign, style| {
                buffer[(area.left() + column, bottom - row)].set_symbol(sign).set_style(style);
            });
        }
        for line in lines {
            let at = (area.left() + columns, bottom - line.row);
            buffer.set_stringn(at.0, at.1, &line.label, usize::from(LABELS), self.theme.fg(Color::Blue));
        }
    }
}
