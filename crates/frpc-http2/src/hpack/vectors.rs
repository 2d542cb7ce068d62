//! The examples of RFC 7541, appendix C.

use super::{BlockDecoder, BlockEncoder, Field};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// Decodes blocks in turn, and checks their fields and the size of the table after each.
fn check(limit: usize, blocks: &[(&str, &str, usize)]) {
    let mut decoder = BlockDecoder::new(limit, 4096);
    for (block, expected, table_len) in blocks {
        let mut fields = Vec::new();
        let field = |name: &[u8], value: &[u8]| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        };
        assert_eq!(decoder.decode(&bytes(block), field), Ok(true));
        assert_eq!(fields.join("\n"), *expected);
        assert_eq!(decoder.table_len(), *table_len);
    }
}

#[test]
fn fields_of_appendix_c_2() {
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check(4096, &[(custom, "custom-key: custom-header", 55)]);
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0)]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0)]);
    check(4096, &[("82", ":method: GET", 0)]);
}

const REQUESTS: [(&str, usize); 3] = [
    (":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com", 57),
    (":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache", 110),
    (":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value", 164),
];

#[test]
fn requests_of_appendix_c_3_and_c_4() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        let rows: Vec<_> = blocks.iter().zip(REQUESTS).map(|(block, (text, len))| (*block, text, len)).collect();
        check(4096, &rows);
    }
}

#[test]
fn responses_of_appendix_c_5_and_c_6_with_evictions() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120
         474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718
         63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
    ];
    let rest = "cache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com";
    let (first, second) = (format!(":status: 302\n{rest}"), format!(":status: 307\n{rest}"));
    check(256, &[(plain[0], &first, 222), (plain[1], &second, 222)]);
    let third = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
    let fields = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
                  location: https://www.example.com\ncontent-encoding: gzip\n\
                  set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    check(256, &[(huffman[0], &first, 222), (huffman[1], &second, 222), (third, fields, 215)]);
}

#[test]
fn the_encoder_writes_the_first_request_of_appendix_c_4() {
    let mut encoder = BlockEncoder::new(4096);
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")] {
        encoder.field(&mut out, Field::repeated(name, value));
    }
    assert_eq!(out, bytes("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"));
}
