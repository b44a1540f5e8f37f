use super::*;

/// A file of version 1.0 with this header and `data` bytes behind it.
fn file(header: &str, data: usize) -> Vec<u8> {
    let len = u16::try_from(header.len()).unwrap();
    [b"\x93NUMPY\x01\x00", &len.to_le_bytes()[..], header.as_bytes(), &vec![7; data]].concat()
}

fn array(descr: &str, shape: &str, data: usize) -> Result<Array, FormatError> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}   \n");
    records(&file(&header, data))
}

#[track_caller]
fn check_row(descr: &str, shape: &str, data: usize, record_bytes: u64, count: u64) {
    let found = array(descr, shape, data).unwrap_or_else(|error| panic!("{descr}: {error}"));
    assert_eq!((found.records.record_bytes, found.records.count), (record_bytes, count), "{descr}");
}

#[track_caller]
fn check_refused(found: Result<Array, FormatError>, expected: &str) {
    let message = found.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/npy");
    std::fs::read(format!("{folder}/{name}.npy")).unwrap()
}

#[test]
fn a_row_is_as_long_as_its_elements() {
    check_row("'<f4'", "(3, 2)", 24, 8, 3);
    check_row("'|b1'", "(3,)", 3, 1, 3);
    check_row("'<U5'", "(2, 1)", 40, 20, 2);
    check_row("'<M8[25s]'", "(2,)", 16, 8, 2);
    check_row("'>c32'", "(1,)", 32, 32, 1);
    check_row("'|V3'", "(2,)", 6, 3, 2);
    check_row("[('a', '<i4'), ('', '|V4'), ('b', '<f8', (2, 2))]", "(2,)", 80, 40, 2);
    check_row("[(('title', 'name'), '|S3'), ('in', [('x', '<i2')])]", "(2,)", 10, 5, 2);
}

#[test]
fn headers_of_python_2_and_other_blanks_are_read() {
    let header = "{u'shape': (2L, 3L), 'fortran_order': False,\n 'descr': u\"<i2\"}";
    let found = records(&file(header, 12)).unwrap();
    assert_eq!((found.dtype.as_str(), found.shape.as_slice()), ("<i2", &[2, 3][..]));
    assert_eq!(found.records.offset, 10 + header.len() as u64);
}

#[test]
fn types_may_be_called_by_their_names() {
    check_row("'float32'", "(3, 2)", 24, 8, 3);
    check_row("'bool'", "(3,)", 3, 1, 3);
    assert_eq!(array("'float32'", "(3, 2)", 24).unwrap().dtype, "<f4");
    assert_eq!(array("'uint8'", "(3, 2)", 6).unwrap().dtype, "|u1");
}

#[test]
fn rows_of_one_long_axis_lie_together_in_either_order() {
    let fortran = |shape: &str, data| {
        let header = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}}}");
        records(&file(&header, data))
    };
    for shape in ["(6,)", "(6, 1)", "(1, 6, 1)", "(1, 1)"] {
        fortran(shape, if shape == "(1, 1)" { 4 } else { 24 }).unwrap();
    }
    check_refused(fortran("(3, 2)", 24), "save numpy.ascontiguousarray(array)");
}

#[test]
fn arrays_without_rows_to_read_are_refused_with_a_way_out() {
    check_refused(records(&fixture("fortran")), "save numpy.ascontiguousarray(array)");
    check_refused(records(&fixture("object")), "a pickle may run code; save it with the dtype");
    check_refused(records(&fixture("scalar")), "without axes, so without rows; save array.resh");
    check_refused(array("'<f4'", "(3, 0)", 0), "whose rows have no bytes");
    check_refused(array("[]", "(3,)", 0), "whose rows have no bytes");
    check_refused(array("[('a', '|O')]", "(3,)", 24), "a pickle may run code");
}

#[test]
fn zero_rows_are_no_samples() {
    check_row("'<f4'", "(0, 5)", 0, 20, 0);
}

#[test]
fn an_array_is_as_long_as_its_header_says() {
    check_refused(array("'<f4'", "(3, 2)", 23), "truncated: the array at byte ");
    check_refused(array("'<f4'", "(3, 2)", 25), "1 bytes longer than its header says");
    check_refused(array("'<f4'", "(0, 2)", 1), "1 bytes longer than its header says");
    check_refused(array("'<f4'", "(4611686018427387904, 2)", 8), "fewer than 2^64 bytes");
    check_refused(array("'<f4'", "(0, 4611686018427387904)", 0), "fewer than 2^64 bytes");
    check_refused(array("'|S18446744073709551615'", "(2,)", 2), "fewer than 2^64 bytes");
    check_refused(array("'<U18446744073709551615'", "(1,)", 2), "NumPy writes");
}

#[test]
fn what_is_no_header_is_refused_where_it_goes_wrong() {
    let header = |text: &str| records(&file(text, 4));
    check_refused(header(""), "the header at byte 10 is its end");
    check_refused(header("{'descr': __import__('os')}"), "the header at byte 20 is `_`");
    check_refused(header("{'descr': '<f4'} x"), "the header at byte 27 is `x`");
    check_refused(header("{'descr': '<f4'}"), "without one of its keys");
    check_refused(header("('descr', '<f4')"), "no dictionary");
    let twice = "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}";
    check_refused(header(twice), "without one of its keys");
    let deep = format!("{{'descr': {}{}}}", "[".repeat(5000), "]".repeat(5000));
    check_refused(header(&deep), "the header at byte 51 is `[`");
    check_refused(array("'<f4'", "(-1,)", 4), "is `-`");
    check_refused(array("'<f4'", "(1)", 4), "the shape at byte 10 is no tuple");
    check_refused(array("'<f4'", "('1',)", 4), "no tuple of numbers");
    check_refused(array("'<f4'", "(99999999999999999999,)", 4), "is `9`");
    check_refused(array("'<f4'", &format!("({})", "1,".repeat(65)), 4), "of 65 axes");
    for descr in ["'f'", "'<f5'", "'<<f4'", "'<f4[s]'", "'<M8[]'", "''", "'<é4'", "'<f-4'", "4"] {
        check_refused(array(descr, "(1,)", 4), "a type that NumPy writes");
    }
    for field in ["'a'", "('a',)", "(1, '<f4')", "('a', '<f4', 2)", "('a', '<f4', ('2',))"] {
        check_refused(array(&format!("[{field}]"), "(1,)", 4), "a type that NumPy writes");
    }
}

#[test]
fn other_versions_and_files_are_refused() {
    let mut object = fixture("float");
    object[6] = 4;
    check_refused(records(&object), "the version at byte 6 is 4.0; versions 1.0, 2.0 and 3.0");
    check_refused(records(&b"PK\x03\x04 and more".to_vec()), "no .npy magic");
    check_refused(records(&Vec::new()), "truncated: the start of the file");
    let object = [&b"\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF"[..], &[b' '; 99]].concat();
    check_refused(records(&object), "truncated: the header at byte 12 ends at byte 4294967307");
    let object = [&b"\x93NUMPY\x02\x00\x01\x00\x10\x00"[..], &vec![b' '; (1 << 20) + 1]].concat();
    check_refused(records(&object), "the header at byte 12 is 1048577 bytes long");
    let object = [&b"\x93NUMPY\x03\x00\x02\x00\x00\x00"[..], b"\xFF\xFE"].concat();
    check_refused(records(&object), "version 3.0 is UTF-8");
}

#[test]
fn strings_are_what_python_reads() {
    let text = |text: &str| match literal::parse(text, 0) {
        Ok(Literal::Str(text)) => text,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(text(r#"'a\'\"b\\'"#), "a'\"b\\");
    assert_eq!(text(r#""it's""#), "it's");
    assert_eq!(text(r"'\x41\u00e9\U0001F600\n\t\r'"), "Aé😀\n\t\r");
    for broken in [r"'a", r"'\x4'", r"'\ud800'", r"'\q'", "'a\nb'", "'"] {
        literal::parse(broken, 0).unwrap_err();
    }
}
