//! The page that is written from the table of constants.

use super::*;
use crate::profile::Unit;

/// The page of constants is written from their table; `CAWL_WRITE_PAGES=1` in the environment does it.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test compares a page, or writes it")]
fn the_page_of_constants_is_the_table() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/CONSTANTS.md");
    let mut page = "# The constants of a machine\n\n\
        What a profile (TOML, `cawl-cli profile show`) can have, by table. *m*: measured by `cawl-cli calibrate`\n\
        ([CALIBRATION](CALIBRATION.md)); *l*: learned from calls. Rates are in bytes per second, times in ns, sizes in\n\
        bytes; a part has no unit. This page is written from the table in crates/cawl-model/src/profile.rs by\n\
        `CAWL_WRITE_PAGES=1 cargo test -p cawl-core page_of_constants`.\n"
        .to_owned();
    let mut table = "";
    HostProfile::complete().each(
        |_| String::new(),
        |constant| {
            let of = ["memory", "device", "calls", "kernel"].into_iter().find(|of| constant.name.starts_with(of));
            let of = of.expect("a table");
            if of != table {
                page += &format!("\n## {of}\n\n| constant | unit | | what it is, and what stands for it |\n|---|---|---|---|\n");
                table = of;
            }
            let is_learned = constants::learned().any(|name| name == constant.name);
            let unit = constant.figure.unit();
            page += &format!(
                "| `{}` | {} | {} | {} |\n",
                constant.name,
                if unit == Unit::Number { "–" } else { unit.name() },
                [("m", !constant.row.label.is_empty()), ("l", is_learned)]
                    .iter()
                    .filter(|(_, holds)| *holds)
                    .map(|(mark, _)| format!("*{mark}*"))
                    .collect::<Vec<_>>()
                    .join(" "),
                constant.row.about.trim().replace("[`", "`").replace("`]", "`"),
            );
        },
    );
    if std::env::var("CAWL_WRITE_PAGES").is_ok() {
        std::fs::write(PAGE, &page).expect("the page is written");
    }
    assert!(
        std::fs::read_to_string(PAGE).is_ok_and(|old| old == page),
        "CONSTANTS.md is not that of the table"
    );
}
