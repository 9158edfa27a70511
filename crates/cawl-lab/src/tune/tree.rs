//! The decision tree that loses least.
//!
//! The law: **of all trees of a depth the one is taken whose choices lose least, and no leaf chooses a
//! setting that does not suit one of its patterns.** What is lost in a pattern is 1 less what the choice
//! reaches of the best. The features of a grid have few values, so all trees are looked at: the best tree of
//! a set of patterns is a choice for all of them, or a question with the best trees of the two sets that it
//! leads to.

use std::collections::HashMap;

use super::pattern::Feature;
use super::table::Study;

/// Losses that differ by less are equal: the simpler setting is taken, and the first question.
const EQUAL: f64 = 1e-9;
/// A question that gains less, as a mean over the patterns, is not asked.
const GAIN: f64 = 1e-3;

/// A tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Most questions before a choice.
    pub depth: u32,
    /// Where it begins.
    pub root: Node,
    /// Mean of what is lost against the best setting, between 0 and 1.
    pub regret: f64,
}

/// A part of a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A choice.
    Leaf(Leaf),
    /// A question: what the value of a feature is.
    Question {
        /// The feature.
        feature: Feature,
        /// Values up to this one lead to `low`.
        at: f64,
        /// Where it goes on.
        low: Box<Node>,
        /// Where it goes on for larger values.
        high: Box<Node>,
    },
}

/// A choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaf {
    /// Number of the setting; None: no setting suits all of the patterns.
    pub setting: Option<usize>,
    /// Patterns that lead here.
    pub patterns: usize,
    /// Mean of what is lost in these against the best.
    pub regret: f64,
}

/// A way through a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What must hold.
    pub conditions: Vec<String>,
    /// Where it leads.
    pub leaf: Leaf,
}

impl Tree {
    /// The best tree of at most this depth.
    pub fn learn(study: &Study, depth: u32) -> Tree {
        let all: Vec<usize> = (0..study.patterns.len()).collect();
        let count = all.len().max(1) as f64;
        let (root, lost) = Learner { study, known: HashMap::new() }.best(all, depth);
        Tree { depth, root, regret: lost / count }
    }

    /// What it chooses for a pattern.
    pub fn choice(&self, study: &Study, pattern: usize) -> Option<usize> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.setting,
                Node::Question { feature, at, low, high } => {
                    let is_low = study.feature(pattern, *feature as usize) <= *at;
                    node = if is_low { low } else { high };
                }
            }
        }
    }

    /// Its ways, in order.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        follow(&self.root, &mut Vec::new(), &mut rules);
        rules
    }
}

/// A step of a way: the feature, the value asked for, and whether it is larger.
type Step = (Feature, f64, bool);

fn follow(node: &Node, way: &mut Vec<Step>, rules: &mut Vec<Rule>) {
    match node {
        Node::Leaf(leaf) => rules.push(Rule { conditions: conditions(way), leaf: *leaf }),
        Node::Question { feature, at, low, high } => {
            for (child, more) in [(low, false), (high, true)] {
                way.push((*feature, *at, more));
                follow(child, way, rules);
                way.pop();
            }
        }
    }
}

/// What holds at the end of a way, by feature.
fn conditions(way: &[Step]) -> Vec<String> {
    let mut features: Vec<Feature> = Vec::new();
    for (feature, ..) in way {
        if !features.contains(feature) {
            features.push(*feature);
        }
    }
    let bound = |of: Feature, more: bool, closer: fn(f64, f64) -> f64| {
        let bounds = way.iter().filter(|(feature, _, is_more)| *feature == of && *is_more == more);
        bounds.map(|(_, at, _)| *at).reduce(closer)
    };
    let text = |feature: &Feature| {
        feature.condition(bound(*feature, true, f64::max), bound(*feature, false, f64::min))
    };
    features.iter().map(text).collect()
}

struct Learner<'a> {
    study: &'a Study,
    /// The best trees found so far, by patterns and depth.
    known: HashMap<(Vec<usize>, u32), (Node, f64)>,
}

impl Learner<'_> {
    /// The best tree of these patterns, and the sum of what it loses.
    fn best(&mut self, members: Vec<usize>, depth: u32) -> (Node, f64) {
        let leaf = self.leaf(&members);
        let mut best = (Node::Leaf(leaf), leaf.regret * members.len() as f64);
        // What a question may lose.
        let mut least = best.1 - GAIN * members.len() as f64;
        if depth == 0 || least < 0.0 {
            return best;
        }
        let key = (members, depth);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        for (index, feature) in Feature::ALL.into_iter().enumerate() {
            let value = |at: &usize| self.study.feature(*at, index);
            let mut values: Vec<f64> = key.0.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            values.pop();
            for at in values {
                let (low, high): (Vec<usize>, Vec<usize>) =
                    key.0.iter().partition(|pattern| self.study.feature(**pattern, index) <= at);
                let (low, lost_low) = self.best(low, depth - 1);
                if lost_low > least {
                    continue;
                }
                let (high, lost_high) = self.best(high, depth - 1);
                let lost = lost_low + lost_high;
                if lost < least {
                    least = lost - EQUAL;
                    best = (Node::Question { feature, at, low: Box::new(low), high: Box::new(high) }, lost);
                }
            }
        }
        self.known.insert(key, best.clone());
        best
    }

    /// The setting that loses least in all of these patterns. Where none suits all, everything is lost.
    fn leaf(&self, members: &[usize]) -> Leaf {
        let lost = |setting: usize| -> Option<f64> {
            members.iter().map(|at| self.study.reached(*at, setting).map(|reached| 1.0 - reached)).sum()
        };
        let mut best: Option<(usize, f64)> = None;
        for setting in 0..self.study.settings.len() {
            let Some(lost) = lost(setting) else { continue };
            if best.is_none_or(|(_, least)| lost < least - EQUAL) {
                best = Some((setting, lost));
            }
        }
        let count = members.len();
        match best {
            Some((setting, lost)) => {
                Leaf { setting: Some(setting), patterns: count, regret: lost / count.max(1) as f64 }
            }
            None => Leaf { setting: None, patterns: count, regret: 1.0 },
        }
    }
}
