/** `authenticate` and `logout` act on the agent process, for everyone. Their params are kept in memory only. */
import type { RequestMessage } from '../../protocol/json-rpc.ts';
import type { Connection } from '../connection.ts';
import { agentParams, forward, withAgent } from './pass.ts';

export function authenticate(connection: Connection, message: RequestMessage): void {
  withAgent(connection, message, (agent) => {
    const params = agentParams(message);
    forward(connection, message, agent, params, (answer) => {
      if (answer.error) return;
      connection.house.agentHost.rememberAuthenticate(message.method === 'authenticate' ? params : undefined);
    });
  });
}
