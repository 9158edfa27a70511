//! The web page, as texts to serve. No secret is in them: they are served without a token.

/// `/`, as text/html.
pub const PAGE: &str = include_str!("web/index.html");

/// `/app.css`, as text/css.
pub const STYLE: &str = "body { font-family: sans-serif; margin: 2em; }\n";

/// `/app.js`, as text/javascript.
pub const SCRIPT: &str = "";

/// The header Content-Security-Policy that belongs to the page: nothing from elsewhere, nothing inline.
pub const POLICY: &str = "default-src 'self'; img-src 'self' data:";
