import { storeDir } from '../support/store-dir.ts';
import { openLmdbEventLog } from '../../storage/lmdb-event-log.ts';
import { eventLogContract } from '../contract/event-log.contract.ts';

eventLogContract('lmdb', () => {
  const dir = storeDir();
  return { open: () => openLmdbEventLog(dir.path), clean: () => dir.remove(), durable: true };
});
