//! The web page: three embedded texts with everything it needs (docs/guide/WATCH.md).
//!
//! They load only themselves and `/api/v1/…` of the same daemon, so they work under [`POLICY`]. They have no
//! secret: they are served without a token, and ask for it.

/// `/`, as text/html.
pub const PAGE: &str = include_str!("web/index.html");

/// The script of every page with charts: parts that only use those before them.
macro_rules! charts {
    () => {
        concat!(
            "/*\n",
            include_str!("web/vendor/uPlot.LICENSE"),
            "*/\n",
            include_str!("web/vendor/uPlot.iife.min.js"),
            include_str!("web/format.js"),
            include_str!("web/dom.js"),
            include_str!("web/series.js"),
            include_str!("web/chart.js"),
            include_str!("web/timecharts.js"),
            include_str!("web/causes.js"),
            include_str!("web/scatter.js"),
        )
    };
}

/// `/app.css`, as text/css: the style of every page with charts.
pub const STYLE: &str = concat!(
    include_str!("web/vendor/uPlot.min.css"),
    include_str!("web/app.css"),
    include_str!("web/causes.css")
);

/// Charts for another page: a module's script that draws nothing by itself. [`STYLE`] is its style.
pub const CHARTS: &str = charts!();

/// `/app.js`, as text/javascript: one module, of parts that only use those before them.
pub const SCRIPT: &str = concat!(
    charts!(),
    include_str!("web/link.js"),
    include_str!("web/tables.js"),
    include_str!("web/panels.js"),
    include_str!("web/app.js"),
);

/// The header Content-Security-Policy that belongs to the page: nothing from elsewhere, nothing inline.
pub const POLICY: &str = "default-src 'self'; img-src 'self' data:";
