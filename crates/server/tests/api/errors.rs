//! docs/errors.md is what the code says.

use std::path::Path;

use proctor_server::api::error::catalogue_markdown;

#[test]
fn the_error_catalogue_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let expected = catalogue_markdown();
    if std::env::var_os("PROCTOR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }

    let written = std::fs::read_to_string(&path).unwrap();

    assert!(written == expected, "docs/errors.md is out of date; run with PROCTOR_UPDATE_DOCS=1");
}
