/**
 * Whole lines of a byte stream, decoded as UTF-8. Splits at LF bytes only (U+2028 is a character like others) and takes
 * no offence: what a line holds is for the test to judge.
 */
export function lineSplitter(visit: (line: string) => void): (bytes: Buffer) => void {
  let pending: Buffer[] = [];
  return (bytes) => {
    let from = 0;
    for (let lf = bytes.indexOf(10); lf >= 0; lf = bytes.indexOf(10, from)) {
      const end = bytes.subarray(from, lf);
      visit(pending.length === 0 ? end.toString('utf8') : Buffer.concat([...pending, end]).toString('utf8'));
      pending = [];
      from = lf + 1;
    }
    if (from < bytes.length) pending.push(bytes.subarray(from));
  };
}
