//! A decision tree as SVG: questions from left to right, a line for each choice.

use cawl_console::compact;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::tune::{Feature, Leaf, Node, Study, Tree};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels: of a question, of a choice, between them, of a line, and around all.
const QUESTION: i32 = 190;
const CHOICE: i32 = 400;
const GAP: i32 = 56;
const LINE: i32 = 56;
const BOX: i32 = 40;
const MARGIN: i32 = 16;
const HEADER: i32 = 44;

pub fn picture(study: &Study, tree: &Tree) -> anyhow::Result<String> {
    let (leaves, depth) = (leaves(&tree.root), depth(&tree.root));
    let width = 2 * MARGIN + depth * (QUESTION + GAP) + CHOICE;
    let height = HEADER + leaves * LINE + MARGIN;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (patterns, lost) = (study.patterns.len(), compact::percent(tree.regret));
        let title = format!("{patterns} patterns; a tree of depth {depth} loses {lost}");
        write(&area, (MARGIN, HEADER / 2), &title, 17, HPos::Left)?;
        let choices = MARGIN + depth * (QUESTION + GAP);
        Drawing { study, area: &area, choices }.node(&tree.root, (MARGIN, HEADER), None)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn leaves(node: &Node) -> i32 {
    match node {
        Node::Leaf(_) => 1,
        Node::Question { low, high, .. } => leaves(low) + leaves(high),
    }
}

fn depth(node: &Node) -> i32 {
    match node {
        Node::Leaf(_) => 0,
        Node::Question { low, high, .. } => 1 + depth(low).max(depth(high)),
    }
}

struct Drawing<'a, 'b> {
    study: &'a Study,
    area: &'a Area<'b>,
    /// Where choices stand.
    choices: i32,
}

impl Drawing<'_, '_> {
    /// Draws a part of the tree from here to the right and down; returns the height at which it begins. What
    /// is durable is known to be more than `need`.
    fn node(&self, node: &Node, (x, top): (i32, i32), need: Option<f64>) -> anyhow::Result<i32> {
        match node {
            Node::Leaf(leaf) => self.choice(leaf, x, top + LINE / 2),
            Node::Question { feature, at, low, high } => {
                let next = x + QUESTION + GAP;
                let of_need = *feature == Feature::Need;
                let yes = self.node(low, (next, top), need)?;
                let more = if of_need { Some(*at) } else { need };
                let no = self.node(high, (next, top + leaves(low) * LINE), more)?;
                let y = yes.midpoint(no);
                for (child, answer) in [(yes, "yes"), (no, "no")] {
                    let turn = x + QUESTION + GAP / 2;
                    let way = vec![(x + QUESTION, y), (turn, y), (turn, child), (next, child)];
                    self.area.draw(&PathElement::new(way, BLACK.mix(0.5))).map_err(failed)?;
                    write(self.area, (turn + 4, child - 8), answer, 12, HPos::Left)?;
                }
                let question = format!("{}?", feature.condition(need.filter(|_| of_need), Some(*at)));
                self.frame((x, y), QUESTION, RGBColor(86, 180, 233).mix(0.25))?;
                write(self.area, (x + QUESTION / 2, y), &question, 13, HPos::Center)?;
                Ok(y)
            }
        }
    }

    fn choice(&self, leaf: &Leaf, x: i32, y: i32) -> anyhow::Result<i32> {
        if x < self.choices {
            let way = vec![(x, y), (self.choices, y)];
            self.area.draw(&PathElement::new(way, BLACK.mix(0.5))).map_err(failed)?;
        }
        let name = leaf
            .setting
            .map_or("no setting suits them all".to_owned(), |at| self.study.settings[at].to_string());
        let loses = RGBColor(230, 159, 0).mix((2.0 * leaf.regret).clamp(0.05, 0.9));
        self.frame((self.choices, y), CHOICE, loses)?;
        write(self.area, (self.choices + 10, y - 9), &name, 14, HPos::Left)?;
        let about = format!("{} patterns, loses {}", leaf.patterns, compact::percent(leaf.regret));
        write(self.area, (self.choices + 10, y + 9), &about, 12, HPos::Left)?;
        Ok(y)
    }

    /// A box whose left side is at this height.
    fn frame(&self, (x, y): (i32, i32), width: i32, colour: RGBAColor) -> anyhow::Result<()> {
        let corners = [(x, y - BOX / 2), (x + width, y + BOX / 2)];
        self.area.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
        self.area.draw(&Rectangle::new(corners, BLACK.mix(0.6))).map_err(failed)
    }
}

fn write(area: &Area<'_>, at: (i32, i32), text: &str, size: i32, side: HPos) -> anyhow::Result<()> {
    let style = ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
}

/// Drawing errors do not implement the standard Error trait.
fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("cannot draw: {error}")
}
