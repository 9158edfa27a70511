//! Frames of CPython before 3.12, which lie on its heap: in the place of its function that interprets them.

use cawl_model::record::Frame;
use cawl_wire::stack::{InterpreterFrame, InterpreterFrames};

/// The function in whose place they stand.
const EVALUATES: [&str; 2] = ["_PyEval_EvalFrameDefault", "_PyEval_EvalFrame"];

/// Puts an interpreter's frames into a stack of native ones.
pub fn spliced(native: Vec<Frame>, interpreter: &[u8]) -> Vec<Frame> {
    let mut frames = InterpreterFrames(interpreter).peekable();
    if frames.peek().is_none() {
        return native;
    }
    let mut out = Vec::new();
    for frame in native {
        let name = frame.function.as_deref().unwrap_or_default();
        if !EVALUATES.iter().any(|function| name.split('.').next() == Some(function)) {
            out.push(frame);
        } else if !frame.inlined {
            for inner in frames.by_ref() {
                out.push(frame_of(&inner));
                if inner.is_entry {
                    break;
                }
            }
        }
    }
    // More of them were read than of the stack.
    out.extend(frames.map(|frame| frame_of(&frame)));
    out
}

fn frame_of(frame: &InterpreterFrame<'_>) -> Frame {
    Frame {
        function: text(frame.name),
        file: text(frame.file),
        line: Some(frame.line).filter(|line| *line > 0),
        ..Frame::default()
    }
}

fn text((bytes, width): (&[u8], u8)) -> Option<String> {
    let text: String = match width {
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => {
            let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
            char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        4 => {
            let units =
                bytes.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
            units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => return None,
    };
    Some(text.chars().filter(|char| !char.is_control()).collect::<String>()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(name: &str) -> Frame {
        Frame { function: Some(name.to_owned()), ..Frame::default() }
    }

    fn encoded(frames: &[(&str, bool)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, is_entry) in frames {
            out.extend(InterpreterFrames::head(3, *is_entry, [1, 1], [name.len() as u16, 4]));
            out.extend(name.bytes().chain(*b"a.py"));
        }
        out
    }

    fn names(frames: &[Frame]) -> Vec<&str> {
        frames.iter().filter_map(|frame| frame.function.as_deref()).collect()
    }

    #[test]
    fn frames_stand_where_they_are_interpreted() {
        let stack =
            ["fsync", EVALUATES[0], "sort", "_PyEval_EvalFrameDefault.cold", "main"].map(native).to_vec();
        let frames = encoded(&[("save", false), ("commit", true), ("sorted_by", false), ("<module>", true)]);
        let found = spliced(stack.clone(), &frames);
        assert_eq!(names(&found), ["fsync", "save", "commit", "sort", "sorted_by", "<module>", "main"]);
        assert_eq!((found[1].line, found[1].file.as_deref()), (Some(3), Some("a.py")));
        // Without them, and where the stack was cut off before.
        assert_eq!(spliced(stack.clone(), b""), stack);
        let cut = spliced(stack[..2].to_vec(), &frames);
        assert_eq!(names(&cut), ["fsync", "save", "commit", "sorted_by", "<module>"]);
    }

    #[test]
    fn characters_of_any_width() {
        assert_eq!(text((b"w\xe9", 1)), Some("wé".to_owned()));
        assert_eq!(text((&[0x29, 0xf7], 2)), Some("\u{f729}".to_owned()));
        assert_eq!(text((&[0x00, 0xf6, 0x01, 0x00], 4)), Some("\u{1f600}".to_owned()));
        assert_eq!((text((b"abc", 3)), text((b"", 1)), text((b"\x1b\x07", 1))), (None, None, None));
    }
}
